/* fuzz_api.c - JSON bodies of chats and completions. The first byte chooses which. */
#include "serve/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ek_arena arena;
    struct ek_api_params p;
    struct ek_api_error e = {0};
    if (size == 0)
        return 0;
    ek_arena_init(&arena, 1 << 22);
    enum ek_api_kind kind = data[0] % 2 ? EK_API_COMPLETION : EK_API_CHAT;
    if (ek_api_parse(&p, kind, (const char *)data + 1, size - 1, &arena, &e) == 0)
        ek_api_params_release(&p);
    ek_arena_release(&arena);
    return 0;
}
