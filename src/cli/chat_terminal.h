/* chat_terminal.h - the conversation on a terminal: lines in, streamed answers out. */
#ifndef EVENKEEL_CLI_CHAT_TERMINAL_H
#define EVENKEEL_CLI_CHAT_TERMINAL_H

#include "cli/chat.h"

/* Runs until /quit or the end of input. Ctrl-C ends an answer, not the program.
 * Returns 0, or the error after which no conversation is possible. */
int ek_chat_terminal_run(struct ek_chat_backend *b, const struct ek_chat_options *o,
                         struct ek_err *err) EK_MUST_USE;

/* Answers o->ask once on standard output. EK_ECANCELED when Ctrl-C ended it. */
int ek_chat_ask(struct ek_chat_backend *b, const struct ek_chat_options *o,
                struct ek_err *err) EK_MUST_USE;

#endif
