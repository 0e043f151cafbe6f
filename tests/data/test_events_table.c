/* test_events_table.c - RecBole's files, CSV and TSV. */
#include "eventskit.h"
#include "testkit.h"

static const char *const numeric[] = {"price"}, *const category[] = {"shop"},
                         *const user_numeric[] = {"age"},
                         *const user_category[] = {"land"},
                         *const skip[] = {"title", "words"};

static const struct ek_events_options plain;
static const struct ek_events_options mapped = {.user = "who",
                                                .item = "sku",
                                                .time = "at",
                                                .numeric = {numeric, 1},
                                                .category = {category, 1},
                                                .user_numeric = {user_numeric, 1},
                                                .user_category = {user_category, 1}};
static const struct ek_events_options skipping = {.skip = {skip, 2}};

static int read_as(char out[600], const char *name, const char *text,
                   const struct ek_events_options *o)
{
    return read_text(out, 600, name, text, strlen(text), o);
}

static void recbole_files_bring_their_types(void **state)
{
    (void)state;
    char got[600];
    assert_int_equal(read_as(got, "t.inter",
                             "user_id:token\titem_id:token\trating:float\t"
                             "timestamp:float\tgenre:token\n"
                             "b\t10\t3\t20\tx\n"
                             "a\t11\t4.5\t7\ty\n"
                             "b\t12\t-1e1\t10\tx\n"
                             "b\t13\t0\t20\tz\n",
                             &plain),
                     0);
    assert_string_equal(got, "b: 12@10000000,-10,x 10@20000000,3,x 13@20000000,0,z; "
                             "a: 11@7000000,4.5,y; ");
}

static void columns_of_csv_are_mapped_by_name(void **state)
{
    (void)state;
    char got[600];
    assert_int_equal(
        read_as(
            got, "t.csv",
            "land,who,note,sku,price,at,shop,age\r\n"
            "de,ann,\"a, \"\"b\"\"\",p1,2.5,2024-05-31 18:15:46,\"S \"\"1\"\"\",30\r\n"
            "fr,bob,\"two\nlines\",p2,1,2024-05-31,s2,41\r\n"
            "de,ann,,p2,0,2024-05-31T18:15:45.5Z,s2,30\r\n",
            &mapped),
        0);
    assert_string_equal(got, "ann,de,30: p2@1717179345500000,0,s2 "
                             "p1@1717179346000000,2.5,S \"1\"; "
                             "bob,fr,41: p2@1717113600000000,1,s2; ");
}

static void ids_are_exact(void **state)
{
    (void)state;
    char got[600];
    assert_int_equal(read_as(got, "t.tsv",
                             "user_id\titem_id\n"
                             "7\t-1\n007\t99999999999\n7\t0\n \t\"x\n7\t-1\n",
                             &plain),
                     0);
    assert_string_equal(got, "7: -1 0 -1; 007: 99999999999;  : \"x; ");
}

static void ties_keep_the_order_of_the_file(void **state)
{
    (void)state;
    static const char text[] = "user_id,item_id,timestamp\nu,a,5\nu,b,3\nv,c,1\nu,c,5\n"
                               "u,d,3\nu,e,5\nv,d,1\n";
    struct ek_events e;
    struct ek_events_told told;
    char got[600];
    struct ek_events_options ms = {.unit = EK_EVENTS_MS};
    assert_int_equal(
        ek_events_parse(&e, &told, "t.csv", text, sizeof text - 1, &ms, NULL), 0);
    show_events(got, sizeof got, &e);
    assert_string_equal(got,
                        "u: b@3000 d@3000 a@5000 c@5000 e@5000; v: c@1000 d@1000; ");
    assert_int_equal(told.n_ties, 4);
    assert_int_equal(told.n_users_sorted, 1);
    assert_true(told.has_times && told.format == EK_EVENTS_CSV);
    ek_events_release(&e);
}

static void bad_tables_are_refused_at_their_place(void **state)
{
    (void)state;
#define HEAD "who,sku,price,at,shop,age,land\n"
    static const struct {
        const struct ek_events_options *o;
        const char *name, *text, *says;
    } bad[] = {
        {&plain, "t.csv", "", "t.csv: holds no event: expected a line an event"},
        {&plain, "t.csv", "user_id,item_id\n\n", "t.csv: holds no event"},
        {&plain, "t.csv", "who,item_id\n1,2\n",
         "t.csv:1:1: no column 'user_id': the header has 'who', 'item_id'; --user NAME "
         "says which it is"},
        {&plain, "t.csv", "user_id,sku\n1,2\n", "t.csv:1:1: no column 'item_id'"},
        {&mapped, "t.csv", "who,sku\n1,2\n", "t.csv:1:1: no column 'at'"},
        {&mapped, "t.csv", "who,sku,at\n1,2,3\n", "t.csv:1:1: no column 'price'"},
        {&plain, "t.csv", "user_id,item_id,user_id\n1,2,3\n",
         "t.csv:1:17: column 'user_id' is there twice"},
        {&plain, "t.csv", "user_id,item_id\n1,2\n3\n",
         "t.csv:3:1: 1 columns: expected 2, as in the header"},
        {&plain, "t.csv", "user_id,item_id\n1,\n",
         "t.csv:2:3: item '': expected an id"},
        {&plain, "t.csv", "user_id,item_id\n,2\n",
         "t.csv:2:1: user '': expected an id"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,x\n",
         "t.csv:2:5: time 'x': expected a number, or a time such as 2024-05-31 "
         "18:15:46+02:00"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,nan\n", "t.csv:2:5: time"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,1e30\n", "t.csv:2:5: time"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,-9000000000000\n",
         "t.csv:2:5: time"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,9e12\n", "t.csv:2:5: time"},
        {&plain, "t.csv", "user_id,item_id,timestamp\n1,2,\n", "t.csv:2:5: time"},
        {&mapped, "t.csv", HEAD "a,b,nan,1,s,1,l\n",
         "t.csv:2:5: price 'nan': expected a finite number"},
        {&mapped, "t.csv", HEAD "a,b,1e39,1,s,1,l\n", "t.csv:2:5: price '1e39'"},
        {&mapped, "t.csv", HEAD "a,b,0x10,1,s,1,l\n", "t.csv:2:5: price '0x10'"},
        {&mapped, "t.csv", HEAD "a,b,,1,s,1,l\n", "t.csv:2:5: price ''"},
        {&mapped, "t.csv", HEAD "a,b,1,1,,1,l\n",
         "t.csv:2:9: shop '': expected a name"},
        {&mapped, "t.csv", HEAD "a,b,1,1,s,1,l\na,b,1,1,s,2,l\n",
         "t.csv:3:11: age '2': expected the value of the user's first row"},
        {&mapped, "t.csv", HEAD "a,b,1,1,s,1,l\na,b,1,1,s,1,m\n", "t.csv:3:13: land"},
        {&plain, "t.csv", "user_id,item_id\n\"a\nb,c\n",
         "t.csv:3:1: a quote of the record from line 2 on is not closed"},
        {&plain, "t.csv", "user_id,item_id\n\"a\"b,c\n",
         "t.csv:2:4: text behind a closing quote: expected ','"},
        {&plain, "t.csv", "user_id,item_id\na\"b\",c\n", "t.csv:2:1: a quote inside"},
        {&plain, "t.inter", "user_id\titem_id:token\n",
         "t.inter:1:1: column 'user_id' "
         "has no type"},
        {&plain, "t.inter", "user_id:token\titem_id:token\twords:token_seq\n",
         "t.inter:1:29: column 'words' is of type 'token_seq': expected token or "
         "float"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char got[600];
        int rc = read_as(got, bad[i].name, bad[i].text, bad[i].o);
        assert_memory_equal(got, bad[i].says, strlen(bad[i].says));
        assert_int_equal(rc, strstr(got, "token_seq") ? EK_EUNSUP : EK_EFORMAT);
    }
}

static void a_column_that_is_left_out_may_be_anything(void **state)
{
    (void)state;
    char got[600];
    static const char text[] =
        "user_id:token\titem_id:token\twords:token_seq\ttitle:token\n"
        "1\t2\ta b\t\n";
    assert_int_equal(read_as(got, "t.inter", text, &skipping), 0);
    assert_string_equal(got, "1: 2; ");
}

static const char text_of_all[] = "land,who,sku,price,at,shop,age\n"
                                  "de,ann,p1,2.5,9,\"S \"\"1\"\"\",30\n"
                                  "fr,bob,p2,1,2024-05-31,\"s\n2\",41\n"
                                  "de,ann,p2,0,3,s2,30\n";

static void every_beginning_is_read_or_refused(void *arg, const char *text, size_t n)
{
    (void)arg;
    char got[600];
    int rc = read_text(got, sizeof got, "t.csv", text, n, &mapped);
    assert_true(rc == 0 || rc == EK_EFORMAT);
}

static void truncations_are_read_or_refused(void **state)
{
    (void)state;
    ek_each_prefix(text_of_all, sizeof text_of_all - 1,
                   every_beginning_is_read_or_refused, NULL);
}

static void any_failed_allocation_is_only_that(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_events e = {0};
        ek_assert_rc(ek_events_parse(&e, NULL, "t.csv", text_of_all,
                                     sizeof text_of_all - 1, &mapped, NULL));
        ek_events_release(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recbole_files_bring_their_types),
        cmocka_unit_test(columns_of_csv_are_mapped_by_name),
        cmocka_unit_test(ids_are_exact),
        cmocka_unit_test(ties_keep_the_order_of_the_file),
        cmocka_unit_test(bad_tables_are_refused_at_their_place),
        cmocka_unit_test(a_column_that_is_left_out_may_be_anything),
        cmocka_unit_test(truncations_are_read_or_refused),
        cmocka_unit_test(any_failed_allocation_is_only_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
