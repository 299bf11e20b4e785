/* Of Weir's statuses the stand-in has its own. (Compiled under another name: a file that is built twice
 * confuses clang-tidy's look at its va_list.) */
#include "base/status.c"
