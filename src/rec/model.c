#include "rec/model.h"

const char *ek_rec_kind_name(enum ek_rec_kind kind)
{
    static const char *const names[] = {"sasrec", "hstu", "gem"};
    return names[kind];
}
