#include "base/file.h"
#include "testkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", folder, name);
    return out;
}

static void put_file(const char *path, const void *p, size_t n)
{
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_file_write(path, p, n, &err), 0);
}

static void what_was_written_is_mapped_and_read(void **state)
{
    (void)state;
    static char bytes[200000];
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, 131072, 200000};
    char path[256];
    in_folder(path, "sizes");
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        put_file(path, bytes, sizes[i]);
        struct ek_file f = {0};
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(ek_file_open(&f, path, &err), 0);
        assert_int_equal(f.size, sizes[i]);
        assert_int_equal(f.data == NULL, sizes[i] == 0);
        if (sizes[i])
            assert_memory_equal(f.data, bytes, sizes[i]);
        ek_file_close(&f);
        ek_file_close(&f); /* zeroed by the first */

        struct ek_buf b;
        ek_buf_init(&b, sizes[i] + 2);
        assert_int_equal(ek_buf_add_str(&b, "> "),
                         0); /* read appends, up to the brim */
        assert_int_equal(ek_file_read(&b, path, &err), 0);
        assert_int_equal(b.len, sizes[i] + 2);
        assert_memory_equal(b.data + 2, bytes, sizes[i]);
        ek_buf_release(&b);
    }
}

static void a_file_over_the_ceiling_is_refused_and_nothing_kept(void **state)
{
    (void)state;
    char path[256];
    put_file(in_folder(path, "large"), "0123456789", 10);
    struct ek_buf b;
    struct ek_err err = EK_ERR_INIT;
    ek_buf_init(&b, 12);
    assert_int_equal(ek_buf_add_str(&b, "abc"), 0);
    assert_int_equal(ek_file_read(&b, path, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "large"));
    assert_non_null(strstr(err.text, "12 bytes"));
    assert_string_equal(b.data, "abc");
    assert_int_equal(b.len, 3);
    ek_buf_release(&b);
}

struct bad {
    const char *name;
    int open_status, read_status;
};

static void what_is_no_file_is_refused_by_name(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"absent", EK_ENOENT, EK_ENOENT}, {"file/under", EK_ENOENT, EK_ENOENT},
        {".", EK_EINVAL, EK_EINVAL},      {"pipe", EK_EINVAL, 0},
        {"loop", EK_EIO, EK_EIO},
    };
    char path[256];
    put_file(in_folder(path, "file"), "x", 1);
    assert_int_equal(mkfifo(in_folder(path, "pipe"), 0600), 0);
    assert_int_equal(symlink("loop", in_folder(path, "loop")), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_file f = {.data = (const unsigned char *)"kept", .size = 4};
        struct ek_err err = EK_ERR_INIT;
        in_folder(path, bad[i].name);
        assert_int_equal(ek_file_open(&f, path, &err), bad[i].open_status);
        assert_memory_equal(err.text, path, strlen(path));
        assert_int_equal(f.size, 4);
        if (!bad[i].read_status)
            continue;
        struct ek_buf b;
        ek_buf_init(&b, 100);
        assert_int_equal(ek_file_read(&b, path, &err), bad[i].read_status);
        assert_memory_equal(err.text, path, strlen(path));
        ek_buf_release(&b);
    }
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    struct ek_buf b;
    struct ek_err err = EK_ERR_INIT;
    ek_buf_init(&b, 100);
    int rc = ek_file_read(&b, "-", &err);
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_int_equal(rc, 0);
    assert_string_equal(b.data, "from a pipe");
    ek_buf_release(&b);
}

static int count_files(void)
{
    char line[300];
    snprintf(line, sizeof line, "ls -A %s | wc -l", folder);
    FILE *p = popen(line, "r");
    int n = -1;
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

static void a_failed_write_keeps_the_old_file_and_leaves_nothing(void **state)
{
    (void)state;
    char path[256], deep[256];
    struct ek_err err = EK_ERR_INIT;
    in_folder(path, "a-folder");
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(deep, sizeof deep, "%.200s/in", path);
    put_file(deep, "old", 3);
    int before = count_files();
    assert_int_equal(ek_file_write(path, "x", 1, &err), EK_EINVAL); /* a folder */
    assert_memory_equal(err.text, path, strlen(path));
    assert_int_equal(count_files(), before);
    assert_int_equal(ek_file_write(in_folder(path, "none/x"), "x", 1, &err), EK_ENOENT);

    static char huge[5000];
    memset(huge, 'x', sizeof huge - 1);
    assert_int_equal(ek_file_write(huge, "x", 1, &err), EK_ELIMIT);

    put_file(deep, "new", 3);
    struct ek_file f = {0};
    assert_int_equal(ek_file_open(&f, deep, &err), 0);
    assert_memory_equal(f.data, "new", 3);
    ek_file_close(&f);
}

static void a_link_at_the_temporary_name_is_not_followed(void **state)
{
    (void)state;
    char path[256], aside[300], victim[256];
    put_file(in_folder(victim, "victim"), "untouched", 9);
    in_folder(path, "target");
    snprintf(aside, sizeof aside, "%s.%ld.tmp", path, (long)gettid());
    assert_int_equal(symlink(victim, aside), 0);
    put_file(path, "x", 1);
    struct ek_file f = {0};
    assert_int_equal(ek_file_open(&f, victim, NULL), 0);
    assert_int_equal(f.size, 9);
    ek_file_close(&f);
}

/* A pipe, a link to it, and a link into /proc, as /dev/stdout is one. */
static void what_is_no_file_is_not_replaced(void **state)
{
    (void)state;
    char fifo[256], to_fifo[256], open_one[256];
    struct ek_err err = EK_ERR_INIT;
    struct stat st;
    assert_int_equal(mkfifo(in_folder(fifo, "fifo"), 0600), 0);
    assert_int_equal(symlink(fifo, in_folder(to_fifo, "to-fifo")), 0);
    assert_int_equal(symlink("/proc/self/fd/1", in_folder(open_one, "stdout")), 0);
    const char *const all[] = {fifo, to_fifo, open_one};
    int before = count_files();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(ek_file_write(all[i], "x", 1, &err), EK_EINVAL);
        assert_memory_equal(err.text, all[i], strlen(all[i]));
        assert_int_equal(lstat(all[i], &st), 0);
        assert_true(i ? S_ISLNK(st.st_mode) : S_ISFIFO(st.st_mode));
    }
    assert_int_equal(count_files(), before);
}

static void no_memory_is_an_error_and_keeps_the_buffer(void **state)
{
    (void)state;
    char path[256];
    static char bytes[200000];
    put_file(in_folder(path, "memory"), bytes, sizeof bytes);
    EK_EACH_FAILURE (k) {
        struct ek_buf b;
        ek_buf_init(&b, 1 << 20);
        ek_assert_rc(ek_file_read(&b, path, NULL));
        assert_int_equal(b.len, ek_mem_failed() ? 0 : sizeof bytes);
        ek_buf_release(&b);
    }
}

static void bytes_are_shown_in_the_unit_that_fits(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(ek_format_bytes(out, 0), "0 B");
    assert_string_equal(ek_format_bytes(out, 1023), "1023 B");
    assert_string_equal(ek_format_bytes(out, 1024), "1.0 KiB");
    assert_string_equal(ek_format_bytes(out, 1536), "1.5 KiB");
    assert_string_equal(ek_format_bytes(out, (1 << 20) - 1), "1.0 MiB");
    assert_string_equal(ek_format_bytes(out, 102550733), "97.8 MiB");
    assert_string_equal(ek_format_bytes(out, UINT64_MAX), "16.0 EiB");
}

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/ek-file-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char line[100];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_mapped_and_read),
        cmocka_unit_test(a_file_over_the_ceiling_is_refused_and_nothing_kept),
        cmocka_unit_test(what_is_no_file_is_refused_by_name),
        cmocka_unit_test(a_pipe_is_read_to_its_end),
        cmocka_unit_test(a_failed_write_keeps_the_old_file_and_leaves_nothing),
        cmocka_unit_test(a_link_at_the_temporary_name_is_not_followed),
        cmocka_unit_test(what_is_no_file_is_not_replaced),
        cmocka_unit_test(no_memory_is_an_error_and_keeps_the_buffer),
        cmocka_unit_test(bytes_are_shown_in_the_unit_that_fits),
    };
    return cmocka_run_group_tests_name("file", tests, make_folder, remove_folder);
}
