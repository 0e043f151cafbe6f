#include "base/status.h"

const char *ek_status_text(int status)
{
    switch (status) {
    case EK_OK:
        return "ok";
#define X(name, value, text)                                                           \
    case name:                                                                         \
        return text;
        EK_STATUS_TABLE(X)
#undef X
    default:
        return "unknown status";
    }
}

const char *ek_status_name(int status)
{
    switch (status) {
    case EK_OK:
        return "EK_OK";
#define X(name, value, text)                                                           \
    case name:                                                                         \
        return #name;
        EK_STATUS_TABLE(X)
#undef X
    default:
        return "?";
    }
}
