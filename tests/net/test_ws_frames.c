#include "base/rng.h"
#include "net/ws_frames.h"
#include "testkit.h"

#include <string.h>

/* What comes out of a direction that got p[0,n) in pieces: passed bytes, and how often a
 * Pong was taken out. between: places where a frame of ours might have gone. */
struct out {
    char bytes[1 << 20];
    size_t n;
    int n_pongs;
    int n_between;
};

static void feed(struct ek_ws_frames *f, struct out *o, const char *p, size_t n,
                 bool stops)
{
    while (n > 0) {
        size_t used = 0;
        switch (ek_ws_next(f, p, n, stops, &used)) {
        case EK_WS_STEP_PASS:
            memcpy(o->bytes + o->n, p, used);
            o->n += used;
            assert_true(used > 0);
            break;
        case EK_WS_STEP_OTHER:
            memcpy(o->bytes + o->n, f->head, f->n_kept);
            o->n += f->n_kept;
            break;
        case EK_WS_STEP_PONG:
            o->n_pongs++;
            break;
        case EK_WS_STEP_KEPT:
            assert_int_equal(used, n);
            break;
        }
        assert_true(used <= n);
        o->n_between += ek_ws_is_between(f);
        p += used;
        n -= used;
    }
}

static void end(struct ek_ws_frames *f, struct out *o)
{
    size_t n = ek_ws_end(f);
    memcpy(o->bytes + o->n, f->head, n);
    o->n += n;
}

/* A frame with a payload of n bytes, masked or not. */
static size_t frame(char *out, int first, size_t n, bool is_masked)
{
    size_t at = 2;
    out[0] = (char)first;
    out[1] = (char)(n < 126 ? n : n < 65536 ? 126 : 127);
    for (int k = n < 126 ? 0 : n < 65536 ? 2 : 8; k > 0; k--)
        out[at++] = (char)(n >> (8 * (k - 1)));
    if (is_masked) {
        out[1] = (char)(out[1] | 0x80);
        memcpy(out + at, "mask", 4);
        at += 4;
    }
    memset(out + at, 'x', n);
    return at + n;
}

static const uint8_t mark[EK_WS_MARK_BYTES] = "evenkeel1234567";

static struct ek_ws_frames direction(bool is_masked, bool has_mark)
{
    return (struct ek_ws_frames){.is_masked = is_masked,
                                 .mark = has_mark ? mark : NULL};
}

static void frames_of_every_length_are_counted_and_pass(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 16, 125, 126, 127, 65535, 65536, 70000};
    static char text[1 << 19];
    static struct out o;
    for (int masked = 0; masked < 2; masked++) {
        size_t n = 0, n_frames = sizeof lengths / sizeof lengths[0];
        for (size_t i = 0; i < n_frames; i++)
            n += frame(text + n, i % 2 ? 0x82 : 0x01, lengths[i], masked);
        for (size_t piece = 1; piece < 100000; piece = 3 * piece + 1) {
            struct ek_ws_frames f = direction(masked, piece % 2);
            o.n = 0;
            for (size_t at = 0; at < n; at += piece)
                feed(&f, &o, text + at, piece < n - at ? piece : n - at, false);
            assert_int_equal(f.n_frames, n_frames);
            assert_true(ek_ws_is_between(&f));
            assert_int_equal(o.n, n);
            assert_memory_equal(o.bytes, text, n);
        }
    }
}

static void every_end_of_a_frame_is_a_place_for_one_of_ours(void **state)
{
    (void)state;
    static char text[4096];
    static struct out o;
    size_t n = 0;
    for (int i = 0; i < 10; i++)
        n += frame(text + n, 0x81, (size_t)i, false);
    struct ek_ws_frames f = direction(false, false);
    o.n = 0;
    o.n_between = 0;
    feed(&f, &o, text, n, true);
    assert_int_equal(o.n_between, 10);
    assert_memory_equal(o.bytes, text, n);
}

static void our_pong_is_taken_out_wherever_it_is_cut(void **state)
{
    (void)state;
    static char text[512];
    static struct out o;
    for (int masked = 0; masked < 2; masked++) {
        char pong[EK_WS_CONTROL_BYTES];
        size_t before = frame(text, 0x82, 5, masked);
        size_t n_pong = ek_ws_control(pong, EK_WS_PONG, mark, sizeof mark,
                                      masked ? (const uint8_t *)"\x01\xff\x80z" : NULL);
        memcpy(text + before, pong, n_pong);
        size_t n = before + n_pong;
        size_t after = frame(text + n, 0x81, 3, masked);
        for (size_t cut = 0; cut <= n + after; cut++) {
            struct ek_ws_frames f = direction(masked, true);
            o.n = 0;
            o.n_pongs = 0;
            feed(&f, &o, text, cut, false);
            feed(&f, &o, text + cut, n + after - cut, false);
            assert_int_equal(o.n_pongs, 1);
            assert_int_equal(f.n_frames, 2);
            assert_int_equal(o.n, before + after);
            assert_memory_equal(o.bytes, text, before);
            assert_memory_equal(o.bytes + before, text + n, after);
        }
    }
}

/* Pongs with another payload, length or flag, and all of them while none is awaited. */
static void what_is_not_our_pong_passes_whole(void **state)
{
    (void)state;
    static char text[512];
    static struct out o;
    static const size_t lengths[] = {0, 1, 15, 16, 17, 125};
    for (int masked = 0; masked < 2; masked++) {
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            size_t n = frame(text, 0x8a, lengths[i], masked);
            n += frame(text + n, 0x82, 4, masked);
            for (size_t cut = 0; cut <= n; cut++) {
                struct ek_ws_frames f = direction(masked, true);
                o.n = 0;
                o.n_pongs = 0;
                feed(&f, &o, text, cut, false);
                feed(&f, &o, text + cut, n - cut, false);
                assert_int_equal(o.n_pongs, 0);
                assert_int_equal(f.n_frames, 2);
                assert_int_equal(o.n, n);
                assert_memory_equal(o.bytes, text, n);
            }
        }
    }
    struct ek_ws_frames f = direction(false, false);
    size_t n = ek_ws_control(text, EK_WS_PONG, mark, sizeof mark, NULL);
    o.n = 0;
    feed(&f, &o, text, n, false);
    assert_int_equal(o.n, n);
}

static void what_was_kept_goes_on_at_the_end(void **state)
{
    (void)state;
    static struct out o;
    char pong[EK_WS_CONTROL_BYTES];
    size_t n = ek_ws_control(pong, EK_WS_PONG, mark, sizeof mark, NULL);
    for (size_t cut = 0; cut < n; cut++) {
        struct ek_ws_frames f = direction(false, true);
        o.n = 0;
        feed(&f, &o, pong, cut, false);
        end(&f, &o);
        assert_int_equal(o.n, cut);
        assert_memory_equal(o.bytes, pong, cut);
        assert_false(ek_ws_is_between(&f));
    }
}

static void nothing_is_put_behind_a_close(void **state)
{
    (void)state;
    static struct out o;
    char text[EK_WS_CONTROL_BYTES];
    struct ek_ws_frames f = direction(false, false);
    size_t n = ek_ws_control(text, EK_WS_CLOSE, "\x03\xe9", 2, NULL);
    o.n = 0;
    o.n_between = 0;
    feed(&f, &o, text, n, true);
    assert_true(f.has_close && o.n_between == 0);
}

static void bytes_that_break_the_protocol_pass_and_lose_the_frames(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        bool is_masked;
    } cases[] = {
        {"\x82\x85", 2, false},                    /* masked by a server */
        {"\x82\x05", 2, true},                     /* not masked by a client */
        {"\x09\x00", 2, false},                    /* a Ping in parts */
        {"\x8a\x7e\x00\xff", 4, false},            /* a Pong over 125 bytes */
        {"\x82\x7f\xff\0\0\0\0\0\0\0", 10, false}, /* a length over 2^63 */
        {"GET / HTTP/1.1\r\n\r\n", 18, true},
    };
    static struct out o;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_ws_frames f = direction(cases[i].is_masked, true);
        o.n = 0;
        feed(&f, &o, cases[i].bytes, cases[i].n, true);
        feed(&f, &o, "\x82\x00\x82\x00", 4, true);
        assert_true(f.is_lost);
        assert_false(ek_ws_is_between(&f));
        assert_int_equal(o.n, cases[i].n + 4);
        assert_memory_equal(o.bytes, cases[i].bytes, cases[i].n);
    }
}

/* Random bytes, cut at random: what passes is what came, less whole Pongs of ours. */
static void any_bytes_in_any_pieces_pass_alike(void **state)
{
    (void)state;
    static char text[600];
    static struct out whole, cut;
    struct ek_rng rng;
    ek_rng_init(&rng, 7);
    for (int round = 0; round < 4000; round++) {
        size_t n = 0;
        while (n < 300) {
            uint64_t kind = ek_rng_below(&rng, 10);
            if (kind == 0)
                n += ek_ws_control(text + n, EK_WS_PONG, mark, sizeof mark, NULL);
            else if (kind == 1 && round % 4 == 0)
                text[n++] = (char)ek_rng_u64(&rng);
            else
                n += frame(text + n, 0x80 | (int)ek_rng_below(&rng, 16),
                           ek_rng_below(&rng, 140), false);
        }
        struct ek_ws_frames a = direction(false, true), b = a;
        whole.n = cut.n = 0;
        feed(&a, &whole, text, n, false);
        for (size_t at = 0; at < n;) {
            size_t k = 1 + ek_rng_below(&rng, n - at);
            feed(&b, &cut, text + at, k, round % 2);
            at += k;
        }
        end(&a, &whole);
        end(&b, &cut);
        assert_int_equal(a.n_frames, b.n_frames);
        assert_int_equal(whole.n, cut.n);
        assert_memory_equal(whole.bytes, cut.bytes, whole.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_every_length_are_counted_and_pass),
        cmocka_unit_test(every_end_of_a_frame_is_a_place_for_one_of_ours),
        cmocka_unit_test(our_pong_is_taken_out_wherever_it_is_cut),
        cmocka_unit_test(what_is_not_our_pong_passes_whole),
        cmocka_unit_test(what_was_kept_goes_on_at_the_end),
        cmocka_unit_test(nothing_is_put_behind_a_close),
        cmocka_unit_test(bytes_that_break_the_protocol_pass_and_lose_the_frames),
        cmocka_unit_test(any_bytes_in_any_pieces_pass_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
