/*
 * A stand-in for nvidia-cdi-hook, so that CDI files in hook form run on a real container runtime without NVIDIA's toolkit.
 *
 * A createContainer hook (OCI runtime specification, "POSIX-platform Hooks"): runs in the container's mount namespace before
 * pivot_root, reads the container's state as JSON from stdin and finds the root file system through the bundle's config.json.
 *
 *   create-symlinks --link TARGET::PATH ...      a symbolic link in the container, whatever was there before
 *   update-ldcache --folder DIR ...              the machine's ldconfig, run inside the container's root
 *   enable-cuda-compat --host-driver-version=V   prefer the image's newer libcuda over the host's
 *   disable-device-node-modification             nothing to do: see there
 *   update-application-profile, chmod            accepted, nothing to do
 *
 * Paths of the container are resolved inside its root (openat2 RESOLVE_IN_ROOT, Linux 5.6), never outside it. Static, one file,
 * no dependencies: it runs wherever the runtime does. Not a security boundary; NVIDIA's program handles more cases.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, DOCUMENT_SIZE = 8 << 20 };

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("nvidia-cdi-hook: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* ---- JSON: just enough to follow object keys to a string ---- */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

/* The end of the value at `at`; nesting is counted, so that keys of inner objects are never taken for outer ones. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    do {
        at = skip_space(at);
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']')
            depth--;
        else if (depth == 0)
            return at + strcspn(at, ",}] \t\r\n");
        if (*at)
            at++;
    } while (depth > 0 && *at);
    return at;
}

/* The value of `key` in the object at `at`, or NULL. */
static const char *member(const char *at, const char *key)
{
    if (at == NULL || *(at = skip_space(at)) != '{')
        return NULL;
    at = skip_space(at + 1);
    while (*at == '"') {
        const char *name = at + 1;
        at = skip_string(at);
        size_t length = (size_t)(at - name) - 1;
        at = skip_space(at);
        if (*at != ':')
            return NULL;
        at = skip_space(at + 1);
        if (length == strlen(key) && strncmp(name, key, length) == 0)
            return at;
        at = skip_space(skip_value(at));
        if (*at == ',')
            at = skip_space(at + 1);
    }
    return NULL;
}

/* Copies the string at `value` to `text`. Escapes other than \/ \" \\ do not occur in the two paths that are read. */
static void copy_string(const char *value, char *text, const char *what)
{
    if (value == NULL || *value != '"')
        fail("no %s in the document", what);
    size_t length = 0;
    for (value++; *value && *value != '"' && length < PATH_SIZE - 1; value++) {
        if (*value == '\\')
            value++;
        text[length++] = *value;
    }
    text[length] = '\0';
}

static char *read_all(int descriptor)
{
    char *text = malloc(DOCUMENT_SIZE + 1);
    size_t length = 0;
    ssize_t count;
    if (text == NULL)
        fail("out of memory");
    while (length < DOCUMENT_SIZE && (count = read(descriptor, text + length, DOCUMENT_SIZE - length)) > 0)
        length += (size_t)count;
    text[length] = '\0';
    return text;
}

/* ---- the container ---- */

struct container {
    char id[PATH_SIZE];
    char root_path[2 * PATH_SIZE];
    int root;
};

static void open_container(struct container *container)
{
    char bundle[PATH_SIZE], config_path[PATH_SIZE + 16], root[PATH_SIZE];
    char *state = read_all(STDIN_FILENO);
    copy_string(member(state, "bundle"), bundle, "bundle in the state on stdin");
    copy_string(member(state, "id"), container->id, "id in the state on stdin");
    snprintf(config_path, sizeof config_path, "%s/config.json", bundle);
    int descriptor = open(config_path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        fail("%s: %s", config_path, strerror(errno));
    char *config = read_all(descriptor);
    close(descriptor);
    copy_string(member(member(config, "root"), "path"), root, "root.path in config.json");
    if (root[0] == '/')
        snprintf(container->root_path, sizeof container->root_path, "%s", root);
    else
        snprintf(container->root_path, sizeof container->root_path, "%s/%s", bundle, root);
    container->root = open(container->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (container->root < 0)
        fail("container root %s: %s", container->root_path, strerror(errno));
    free(state);
    free(config);
}

static int open_in_root(int root, const char *path, unsigned long long flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Opens the directory of `path`, making what is missing. */
static int open_parent(int root, const char *path)
{
    char directory[PATH_SIZE];
    int parent = open_in_root(root, "/", O_PATH | O_DIRECTORY);
    for (const char *slash = strchr(path + 1, '/'); parent >= 0 && slash; slash = strchr(slash + 1, '/')) {
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
        int next = open_in_root(root, directory, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            mkdirat(parent, strrchr(directory, '/') + 1, 0755);
            next = open_in_root(root, directory, O_PATH | O_DIRECTORY);
        }
        close(parent);
        parent = next;
    }
    return parent;
}

static void create_symlink(const struct container *container, char *link)
{
    char *separator = strstr(link, "::");
    if (separator == NULL || separator[2] != '/')
        fail("--link %s: want TARGET::/PATH", link);
    *separator = '\0';
    const char *target = link, *path = separator + 2, *name = strrchr(path, '/') + 1;
    int parent = open_parent(container->root, path);
    if (parent < 0)
        fail("directory of %s in the container: %s", path, strerror(errno));
    if (unlinkat(parent, name, 0) < 0 && errno != ENOENT)
        fail("%s in the container is in the way: %s", path, strerror(errno));
    if (symlinkat(target, parent, name) < 0)
        fail("%s -> %s in the container: %s", path, target, strerror(errno));
    close(parent);
}

static void update_ldcache(const struct container *container, char **folders, int count)
{
    /* ldconfig of the machine, as it need not be in the image; -r keeps it inside the container's root. */
    char **arguments = calloc((size_t)count + 4, sizeof *arguments);
    int status, used = 0;
    if (arguments == NULL)
        fail("out of memory");
    arguments[used++] = "ldconfig";
    arguments[used++] = "-r";
    arguments[used++] = (char *)container->root_path;
    for (int index = 0; index < count; index++) {
        int folder = open_in_root(container->root, folders[index], O_PATH | O_DIRECTORY);
        if (folder < 0)
            continue; /* the image may lack a folder that only some libraries use; ldconfig would complain */
        close(folder);
        arguments[used++] = folders[index];
    }
    pid_t child = fork();
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        dup2(quiet, STDOUT_FILENO);
        dup2(quiet, STDERR_FILENO); /* ldconfig warns of every link and stub it does not like */
        execv("/sbin/ldconfig.real", arguments);
        execv("/sbin/ldconfig", arguments);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        fail("cannot run ldconfig: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("ldconfig -r %s ended with status %#x; is /etc of the container writable?", container->root_path, status);
    free(arguments);
}

static void enable_cuda_compat(const struct container *container, const char *host_version)
{
    char pattern[3 * PATH_SIZE], path[PATH_SIZE];
    glob_t found;
    if (host_version == NULL)
        fail("enable-cuda-compat: --host-driver-version is missing");
    snprintf(pattern, sizeof pattern, "%s/usr/local/cuda/compat/libcuda.so.*.*", container->root_path);
    int result = glob(pattern, 0, NULL, &found);
    if (result == GLOB_NOMATCH)
        return;
    if (result != 0)
        fail("cannot search %s", pattern);
    const char *version = strstr(strrchr(found.gl_pathv[0], '/'), ".so.") + 4;
    if (found.gl_pathc == 1 && atoi(version) > atoi(host_version)) {
        snprintf(path, sizeof path, "/etc/ld.so.conf.d/00-compat-%.16s.conf", container->id);
        int parent = open_parent(container->root, path);
        int file = parent < 0 ? -1 : openat(parent, strrchr(path, '/') + 1, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (file < 0 || dprintf(file, "/usr/local/cuda/compat\n") < 0)
            fail("%s in the container: %s", path, strerror(errno));
        close(file);
        close(parent);
    }
    globfree(&found);
}

/* ---- command line: `--name VALUE` or `--name=VALUE` ---- */

static int options(int argc, char **argv, const char *name, char **values)
{
    int count = 0;
    size_t length = strlen(name);
    for (int index = 2; index < argc; index++) {
        if (strncmp(argv[index], name, length) != 0)
            continue;
        if (argv[index][length] == '=')
            values[count++] = argv[index] + length + 1;
        else if (argv[index][length] == '\0' && index + 1 < argc)
            values[count++] = argv[++index];
    }
    return count;
}

int main(int argc, char **argv)
{
    struct container container;
    char **values = calloc((size_t)argc + 1, sizeof *values);
    if (argc < 2 || values == NULL)
        fail("usage: nvidia-cdi-hook create-symlinks|update-ldcache|enable-cuda-compat|disable-device-node-modification [options]");
    const char *command = argv[1];
    open_container(&container);
    if (strcmp(command, "create-symlinks") == 0) {
        int count = options(argc, argv, "--link", values);
        for (int index = 0; index < count; index++)
            create_symlink(&container, values[index]);
    } else if (strcmp(command, "update-ldcache") == 0) {
        update_ldcache(&container, values, options(argc, argv, "--folder", values));
    } else if (strcmp(command, "enable-cuda-compat") == 0) {
        options(argc, argv, "--host-driver-version", values);
        enable_cuda_compat(&container, values[0]);
    } else if (strcmp(command, "disable-device-node-modification") == 0) {
        /* The real one covers /proc/driver/nvidia/params; a container's own /proc shows none on a machine without the driver. */
    } else if (strcmp(command, "update-application-profile") != 0 && strcmp(command, "chmod") != 0) {
        fail("unknown command %s", command);
    }
    free(values);
    return 0;
}
