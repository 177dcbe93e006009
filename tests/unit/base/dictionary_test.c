/* Names that get another: base/dictionary.h. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/dictionary.h"
#include "base/status.h"

/* Against a plain list: many renames in a small table, so that clusters form. */
Test(dictionary, renamed_ids_are_found_by_their_new_name_alone)
{
    struct dl_dictionary *d;
    char names[200][24];
    uint64_t random = 7;
    cr_assert_eq(dl_dictionary_new(1000, &d), DL_OK);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t id;
        snprintf(names[i], sizeof names[i], "node-%u", i);
        cr_assert_eq(dl_dictionary_intern(d, 0, dl_slice_text(names[i]), &id, NULL), DL_OK);
        cr_assert_eq(id, i);
    }
    for (int step = 0; step < 1000; step++) {
        char before[24];
        uint32_t id;
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t victim = (uint32_t)(random >> 33) % 200;
        memcpy(before, names[victim], sizeof before);
        snprintf(names[victim], sizeof names[victim], "renamed-%d", step);
        cr_assert_eq(dl_dictionary_rename(d, victim, 0, dl_slice_text(names[victim])), DL_OK);
        cr_assert_eq(dl_dictionary_find(d, 0, dl_slice_text(before), &id), DL_ERR_NOT_FOUND);
        if (step % 50) continue;
        for (uint32_t i = 0; i < 200; i++) {
            cr_assert_eq(dl_dictionary_find(d, 0, dl_slice_text(names[i]), &id), DL_OK);
            cr_assert_eq(id, i);
        }
    }
    cr_assert_eq(dl_dictionary_rename(d, 3, 0, dl_slice_text(names[4])), DL_ERR_EXISTS);
    dl_dictionary_free(d);
}
