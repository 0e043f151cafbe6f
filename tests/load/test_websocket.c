/* test_websocket.c - frames against a second, plain way to write them, at every cut. */
#include "base/rng.h"
#include "load/websocket.h"
#include "testkit.h"

#include <string.h>

static void heads_are_the_same_after_writing_and_reading(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 125, 126, 127, 65535, 65536, 1ull << 40};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int is_masked = 0; is_masked < 2; is_masked++) {
            uint8_t p[EK_WS_HEAD_MAX];
            struct ek_ws_head got, h = {.n = sizes[i],
                                        .opcode = EK_WS_BINARY,
                                        .is_final = i & 1,
                                        .is_masked = is_masked,
                                        .mask = {1, 2, 3, 4}};
            size_t n = ek_ws_head_write(p, &h);
            for (size_t cut = 0; cut < n; cut++)
                assert_int_equal(ek_ws_head_read(&got, p, cut), EK_EAGAIN);
            assert_int_equal(ek_ws_head_read(&got, p, n), 0);
            assert_int_equal(got.n_head, n);
            assert_int_equal(got.n, h.n);
            assert_int_equal(got.opcode, h.opcode);
            assert_int_equal(got.is_final, h.is_final);
            assert_int_equal(got.is_masked, is_masked);
            if (is_masked)
                assert_memory_equal(got.mask, h.mask, 4);
        }
    }
}

static void heads_that_rfc_6455_forbids_are_refused(void **state)
{
    (void)state;
    static const uint8_t bad[][10] = {
        {0xc2, 1},                                 /* a reserved bit */
        {0x83, 1},                                 /* a reserved opcode */
        {0x8b, 1},                                 /* the same, of control */
        {0x82, 126, 0, 125},                       /* 125 needs no more bytes */
        {0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, /* 65535 needs two */
        {0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0},    /* the highest bit */
        {0x09, 1},                                 /* half a ping */
        {0x88, 126, 0, 126},                       /* a long close */
    };
    struct ek_ws_head h;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ek_ws_head_read(&h, bad[i], sizeof bad[i]), EK_EFORMAT);
}

static void masking_twice_changes_nothing_and_once_is_byte_by_byte(void **state)
{
    (void)state;
    static const uint8_t mask[4] = {0xde, 0xad, 0xbe, 0xef};
    for (size_t n = 0; n < 40; n++) {
        uint8_t p[40], q[40];
        for (size_t i = 0; i < n; i++)
            p[i] = q[i] = (uint8_t)(7 * i);
        ek_ws_mask(p, n, mask);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], q[i] ^ mask[i % 4]);
        ek_ws_mask(p, n, mask);
        assert_memory_equal(p, q, n);
    }
}

enum { N_FRAMES = 6 };
static const size_t sizes[N_FRAMES] = {0, 5, 125, 126, 300, 1};

struct seen {
    size_t n;
    int refuses_at; /* -1: never */
};

static int on_frame(void *owner, const struct ek_ws_head *h, uint8_t *payload)
{
    struct seen *s = owner;
    assert_true(s->n < N_FRAMES);
    assert_int_equal(h->n, sizes[s->n]);
    for (size_t i = 0; i < h->n; i++)
        assert_int_equal(payload[i], (uint8_t)(s->n + i));
    return (int)s->n++ == s->refuses_at ? EK_EUNSUP : 0;
}

static size_t write_frames(uint8_t *p)
{
    size_t n = 0;
    for (size_t f = 0; f < N_FRAMES; f++) {
        struct ek_ws_head h = {.n = sizes[f],
                               .opcode = EK_WS_BINARY,
                               .is_final = true,
                               .is_masked = f % 2,
                               .mask = {9, 8, 7, 6}};
        n += ek_ws_head_write(p + n, &h);
        for (size_t i = 0; i < sizes[f]; i++)
            p[n + i] = (uint8_t)(f + i);
        if (h.is_masked)
            ek_ws_mask(p + n, sizes[f], h.mask);
        n += sizes[f];
    }
    return n;
}

static void a_stream_gives_the_same_frames_whatever_its_cuts(void **state)
{
    (void)state;
    uint8_t whole[1024], p[1024];
    size_t n = write_frames(whole);
    for (size_t step = 1; step <= n; step++) {
        struct seen seen = {.refuses_at = -1};
        struct ek_ws_reader r = {.max = 300, .on_frame = on_frame, .owner = &seen};
        for (size_t at = 0; at < n; at += step) {
            size_t k = n - at < step ? n - at : step;
            memcpy(p, whole + at, k);
            assert_int_equal(ek_ws_reader_feed(&r, p, k), 0);
        }
        assert_int_equal(seen.n, N_FRAMES);
        assert_null(r.part.data); /* nothing is held between frames */
        ek_ws_reader_release(&r);
    }
}

static void a_frame_over_the_limit_or_that_is_refused_ends_the_stream(void **state)
{
    (void)state;
    uint8_t p[1024];
    for (int at = 0; at < N_FRAMES; at++) {
        struct seen seen = {.refuses_at = at};
        struct ek_ws_reader r = {.max = 300, .on_frame = on_frame, .owner = &seen};
        size_t n = write_frames(p);
        assert_int_equal(ek_ws_reader_feed(&r, p, n), EK_EUNSUP);
        assert_int_equal(seen.n, at + 1);
        ek_ws_reader_release(&r);
    }
    struct seen seen = {.refuses_at = -1};
    struct ek_ws_reader r = {.max = 299, .on_frame = on_frame, .owner = &seen};
    size_t n = write_frames(p);
    assert_int_equal(ek_ws_reader_feed(&r, p, n), EK_ELIMIT);
    assert_int_equal(seen.n, 4);
    ek_ws_reader_release(&r);
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    uint8_t whole[1024], p[1024];
    size_t n = write_frames(whole);
    EK_EACH_FAILURE (k) {
        struct seen seen = {.refuses_at = -1};
        struct ek_ws_reader r = {.max = 300, .on_frame = on_frame, .owner = &seen};
        int rc = 0;
        for (size_t at = 0; at < n && !rc; at += 50) {
            size_t m = n - at < 50 ? n - at : 50;
            memcpy(p, whole + at, m);
            rc = ek_ws_reader_feed(&r, p, m);
        }
        ek_assert_rc(rc);
        ek_ws_reader_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_the_same_after_writing_and_reading),
        cmocka_unit_test(heads_that_rfc_6455_forbids_are_refused),
        cmocka_unit_test(masking_twice_changes_nothing_and_once_is_byte_by_byte),
        cmocka_unit_test(a_stream_gives_the_same_frames_whatever_its_cuts),
        cmocka_unit_test(a_frame_over_the_limit_or_that_is_refused_ends_the_stream),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
