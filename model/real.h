/* The number type of the model: float, or double in the build that the
 * gradient tests use (DL_REAL_DOUBLE, plain C kernels only). */
#ifndef DL_MODEL_REAL_H
#define DL_MODEL_REAL_H

#ifdef DL_REAL_DOUBLE
typedef double dl_real;
#define DL_REAL_FN(name) name
#else
typedef float dl_real;
#define DL_REAL_FN(name) name##f /* the C library's function of that type: DL_REAL_FN(exp) */
#endif

#endif
