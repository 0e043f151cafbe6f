#include "data/template_int.h"

int ek_tpl_scope_check(struct ek_template *t, struct ek_err *err)
{
    (void)t;
    (void)err;
    return 0;
}
