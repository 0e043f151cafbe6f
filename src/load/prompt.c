#include "load/prompt.h"

#include "base/map.h"
#include "base/rng.h"

#include <math.h>

#define WORD_BYTES 4
#define N_WORDS    (sizeof words / sizeof words[0])

static const char words[][WORD_BYTES + 1] = {
    "able", "also", "area", "army", "away", "baby", "back", "ball", "band", "bank",
    "base", "bear", "beat", "been", "best", "bird", "blue", "boat", "body", "book",
    "born", "both", "burn", "call", "came", "camp", "card", "care", "case", "cell",
    "city", "club", "coal", "coat", "cold", "come", "cool", "copy", "corn", "cost",
    "dark", "data", "date", "days", "dead", "deal", "dear", "deep", "does", "done",
    "door", "down", "draw", "drop", "dust", "duty", "each", "earn", "east", "easy",
    "edge", "even", "ever", "face", "fact", "fair", "fall", "farm", "fast", "fear",
    "feed", "feel", "feet", "fell", "felt", "file", "fill", "film", "find", "fine",
    "fire", "firm", "fish", "five", "flat", "flow", "food", "foot", "form", "four",
    "free", "from", "full", "fund", "game", "gave", "girl", "give", "goal", "goes",
    "gold", "gone", "good", "gray", "grew", "grow", "hair", "half", "hall", "hand",
    "hard", "have", "head", "hear", "heat", "held", "help", "here", "high", "hill",
    "hold", "hole", "home", "hope", "hour", "huge", "idea", "into", "iron", "item",
    "join", "jump", "just", "keep", "kept", "kind", "king", "knew", "know", "lack",
    "lady", "lake", "land", "last", "late", "lead", "left", "less", "life", "lift",
    "line", "list", "live", "long", "look", "lost", "love", "made", "main", "make",
    "many", "mark", "mass", "mean", "meet", "mind", "mine", "miss", "moon", "more",
    "most", "move", "much", "must", "name", "near", "neck", "need", "news", "next",
    "nice", "nine", "none", "noon", "nose", "note", "once", "only", "onto", "open",
    "over", "page", "paid", "pain", "pair", "park", "part", "pass", "past", "path",
    "plan", "play", "poor", "port", "post", "pull", "race", "rain", "rate", "read",
    "real", "rest", "rich", "ride", "ring", "rise", "road", "rock", "role", "room",
    "rule", "safe", "said", "sail", "salt", "same", "sand", "save", "seat", "seed",
    "seem", "seen", "self", "sell", "send", "sent", "ship", "shop", "show", "side",
    "sign", "size", "skin", "snow", "soft", "soil", "some", "song", "soon", "star",
    "stay", "step", "stop", "such", "take", "talk", "tall", "team", "tell", "test",
    "than", "that", "them", "then", "they", "thin", "this", "time", "told", "tone",
    "town", "tree", "trip", "true", "turn", "unit", "upon", "used", "very", "view",
    "walk", "wall", "want", "warm", "wash", "wave", "ways", "week", "well", "went",
    "were", "west", "what", "when", "wide", "wife", "wild", "will", "wind", "wish",
    "with", "wood", "word", "work", "yard", "year", "your", "zero",
};

int64_t ek_prompt_words(const struct ek_prompt_scale *scale, int64_t n_tokens)
{
    double n = ((double)n_tokens - scale->overhead) / scale->per_word;
    return n >= 1.5 ? (int64_t)llround(n) : 1;
}

static int add_words(struct ek_buf *out, int64_t n, uint64_t seed, bool *is_first)
{
    struct ek_rng rng;
    int rc = 0;
    ek_rng_init(&rng, seed);
    for (int64_t i = 0; i < n && !rc; i++) {
        if (!*is_first)
            rc = ek_buf_add_char(out, ' ');
        if (!rc)
            rc = ek_buf_add(out, words[ek_rng_below(&rng, N_WORDS)], WORD_BYTES);
        *is_first = false;
    }
    return rc;
}

int ek_prompt_add(struct ek_buf *out, const struct ek_prompt_scale *scale,
                  const struct ek_prompt_spec *spec)
{
    int64_t left = ek_prompt_words(scale, spec->n_tokens);
    int64_t a_block = llround(spec->block_tokens / scale->per_word);
    uint64_t chain = spec->seed;
    bool is_first = true;
    int rc = ek_buf_reserve(out, (size_t)left * (WORD_BYTES + 1));
    if (a_block < 1)
        a_block = 1;
    for (size_t i = 0; i < spec->n_hashes && left > 0 && !rc; i++) {
        int64_t n = left < a_block ? left : a_block;
        chain = ek_hash(&spec->hashes[i], sizeof spec->hashes[i], chain);
        rc = add_words(out, n, chain, &is_first);
        left -= n;
    }
    if (!rc && left > 0) {
        chain = ek_hash(&spec->index, sizeof spec->index, chain ^ 0x9e3779b97f4a7c15u);
        rc = add_words(out, left, chain, &is_first);
    }
    return rc;
}
