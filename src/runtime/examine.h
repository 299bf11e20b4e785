/* What a device or a backend finds on this machine, as `weir doctor` tells it. */
#ifndef WEIR_RUNTIME_EXAMINE_H
#define WEIR_RUNTIME_EXAMINE_H

/* Both texts are valid during the call. If something is missing that could be installed, "NAME to do" follows NAME: the
 * command that installs it. */
typedef void rt_say_fn(void *context, const char *name, const char *value);

#endif
