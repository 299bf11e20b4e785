/* The process: what a command must find, whoever started it. */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "cli.h"

/* A standard stream that is closed must not become the number of a file that is opened later: messages
 * would be written into it. Reading or writing it fails as before. */
static void keep_numbers(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* Removes files that are being written; then the signal has its usual effect. */
static void end(int signal_number) {
  weir_saving_abandon_all(); // NOLINT(bugprone-signal-handler): made for handlers, see weir.h
  (void)signal(signal_number, SIG_DFL);
  (void)raise(signal_number);
}

/* A signal that the parent ignores, as nohup does, stays ignored. */
static void remove_files_on(int signal_number) {
  if (signal(signal_number, SIG_IGN) != SIG_IGN) (void)signal(signal_number, end);
}

/* Rank 0 tells for all ranks why a command fails. A launcher that sees a rank fail ends the others, and what they were
 * about to print is lost: so the others leave after it. */
static void let_rank_0_print(void) {
  static const struct timespec lead = {0, 100000000};
  if (weir_launch_rank() > 0) (void)nanosleep(&lead, NULL);
}

int main(int argc, char **argv) {
  keep_numbers();
  (void)signal(SIGPIPE, SIG_IGN);
  remove_files_on(SIGINT);
  remove_files_on(SIGTERM);
  remove_files_on(SIGHUP);
  int code = cli_main(argc, argv);
  if (code != 0) let_rank_0_print();
  return code;
}
