/* The process: sets up what every command relies on. */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "cli.h"

/* The number of a closed standard stream must not be given to a file that is opened later: messages would
 * be written to that file. Reading or writing the stream fails as before. */
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

/* A signal that the parent made this process ignore, as nohup does, stays ignored. */
static void remove_files_on(int signal_number) {
  if (signal(signal_number, SIG_IGN) != SIG_IGN) (void)signal(signal_number, end);
}

/* Rank 0 prints for all ranks why a command failed. A launcher that sees a rank fail ends the others, whose output is
 * then lost: so the other ranks exit after rank 0. */
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
