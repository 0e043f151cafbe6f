/* resident.c - /proc/self/status, and clear_refs to begin a peak anew. */
#include "train/resident.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kB of a line of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *name)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) * 1024 : 0;
}

int64_t ek_resident_bytes(void)
{
    return status_bytes("VmRSS:");
}

int64_t ek_resident_peak(void)
{
    return status_bytes("VmHWM:");
}

void ek_resident_mark(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, "5", 1); /* 5: the peak becomes what is resident now */
    (void)n;
    (void)close(fd);
}
