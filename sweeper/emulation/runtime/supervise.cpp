// Running another program as long as whoever asked for it lives: `launcher --supervise PARENT PROGRAM…`.
#include "supervise.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace simt {

// The supervisor leads a process group, which the program and all that it starts belong to.
static void end_group(int) { kill(0, SIGKILL); }

void die_with_parent(int parent, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) raise(signal);
}

int supervise(int parent, char** program) {
  signal(SIGTERM, end_group);
  die_with_parent(parent, SIGTERM);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGTERM, SIG_DFL);
    execvp(program[0], program);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace simt
