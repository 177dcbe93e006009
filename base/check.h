/* DL_CHECK stays on in release builds and means a bug in driftline, never bad
 * input. DL_DCHECK is for costly checks and is on in debug and sanitizer
 * builds only. Both print the place and abort. */
#ifndef DL_BASE_CHECK_H
#define DL_BASE_CHECK_H

_Noreturn void dl_check_failed(const char *file, int line, const char *expression);

#define DL_CHECK(expression)                                                                       \
    ((expression) ? (void)0 : dl_check_failed(__FILE__, __LINE__, #expression))

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DL_DCHECK(expression) ((void)sizeof(expression))
#else
#define DL_DCHECK(expression) DL_CHECK(expression)
#endif

#endif
