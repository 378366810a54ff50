/* crash.h: a kernel that crashes takes the process with it; what ran is told before. */
#ifndef ATTN_CLI_CRASH_H
#define ATTN_CLI_CRASH_H

/* From now on a crash prints what crash_note said last. */
void crash_catch(void);
/* What runs next, as a whole line for stderr; printf format. Longer texts are cut. */
void crash_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
