/* notify.h - tells whoever started this process (systemd, Type=notify) how it is doing:
 * sd_notify(3) without its library. One datagram to the socket that $NOTIFY_SOCKET
 * names, a path or, behind '@', an abstract name; without one nothing is done.
 *
 * Threads: any, while nobody changes the environment.
 */
#ifndef EVENKEEL_BASE_NOTIFY_H
#define EVENKEEL_BASE_NOTIFY_H

#include <stdbool.h>

/* Each: true, it was sent. None blocks, and an error is nobody's: the service works
 * without. status: a sentence for people ("systemctl status"); a longer one is cut. */
enum { EK_NOTIFY_STATUS_MAX = 1024 };

/* It serves; ends a "reloading", too. takes_over: another process was started, and this
 * one is to be watched instead from now on (MAINPID; NotifyAccess=all). */
bool ek_notify_ready(bool takes_over, const char *status);
/* It reads its configuration again. */
bool ek_notify_reloading(void);
/* It will end. */
bool ek_notify_stopping(const char *status);

#endif
