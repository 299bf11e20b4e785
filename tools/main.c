/* The process: what a command must find, whoever started it. */
#include <fcntl.h>
#include <signal.h>

#include "cli.h"

/* A standard stream that is closed must not become the number of a file that is opened later: messages
 * would be written into it. Reading or writing it fails as before. */
static void keep_numbers(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
  keep_numbers();
  (void)signal(SIGPIPE, SIG_IGN);
  return cli_main(argc, argv);
}
