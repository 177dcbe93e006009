/* Configuration files as hostile input: whatever the bytes, a configuration is
 * read and can be printed, or there is a problem in one line. What is printed
 * of a valid one is read again as the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "service/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads the bytes through a file in memory. The caller deinitialises. */
static int read_bytes(struct dl_config *config, const void *data, size_t size,
                      struct dl_error *error)
{
    char path[40];
    int fd = memfd_create("fuzz", 0);
    DL_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    DL_CHECK(dl_config_init(config) == DL_OK);
    int status = dl_config_read_file(config, path, error);
    if (status == DL_OK) status = dl_config_finish(config, error);
    close(fd);
    return status;
}

static char *print(const struct dl_config *config, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    DL_CHECK(out);
    dl_config_print(config, out);
    fclose(out);
    return text;
}

/* Without the places, which name the file. */
static void cut_places(char *text)
{
    for (char *at = strstr(text, "  # "); at; at = strstr(at, "  # "))
        memmove(at, at + strcspn(at, "\n"), strlen(at + strcspn(at, "\n")) + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dl_config config, again;
    struct dl_error error = {{0}};
    int status = read_bytes(&config, data, size, &error);
    if (status) {
        DL_CHECK(status < 0 && error.text[0] != '\0' && !strchr(error.text, '\n'));
        dl_config_deinit(&config);
        return 0;
    }
    size_t first_size, second_size;
    char *first = print(&config, &first_size);
    status = read_bytes(&again, first, first_size, &error);
    if (status) fprintf(stderr, "%s\n%s\n", error.text, first);
    DL_CHECK(status == DL_OK);
    char *second = print(&again, &second_size);
    cut_places(first);
    cut_places(second);
    DL_CHECK(strcmp(first, second) == 0);
    free(first);
    free(second);
    dl_config_deinit(&config);
    dl_config_deinit(&again);
    return 0;
}
