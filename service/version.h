/* The program's version; CHANGELOG.md says what each one brought. */
#ifndef DL_SERVICE_VERSION_H
#define DL_SERVICE_VERSION_H

#define DL_VERSION "0.1.0"

#endif
