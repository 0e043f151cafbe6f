/* replay.c - a main for fuzz targets built without libFuzzer: runs every file of the
 * folders and files given through the target once. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st)) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int is_bad = !data || fread(data, 1, size, f) != size;
    if (!is_bad)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    fclose(f);
    return is_bad;
}

static int replay_folder(const char *path, DIR *d, int *n)
{
    int is_bad = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char file[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        is_bad |= replay_file(file);
        ++*n;
    }
    return is_bad;
}

int main(int argc, char **argv)
{
    int is_bad = 0, n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (d) {
            is_bad |= replay_folder(argv[i], d, &n);
            closedir(d);
        } else {
            is_bad |= replay_file(argv[i]);
            n++;
        }
    }
    printf("%d inputs replayed\n", n);
    return is_bad || n == 0;
}
