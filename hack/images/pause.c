/* Holds a pod's namespaces open: sleeps, reaps the orphans that fall to process 1, ends when told to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

static void reap(int signal)
{
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    signal(SIGINT, leave);
    signal(SIGTERM, leave);
    signal(SIGCHLD, reap);
    for (;;)
        pause();
}
