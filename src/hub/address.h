/* address.h - what people paste in place of ORG/NAME: a page of the hub, or another tool's short form.
 *
 *   https://HOST/ORG/NAME            the repo; with /tree/REV or /commit/REV that revision; ?… and #… are left out
 *   HOST/ORG/NAME                    the same without a scheme
 *   hf.co/ORG/NAME, hf://ORG/NAME    the same; hf.co is huggingface.co
 *   …/blob/REV/FILE, …/resolve/…     one file: an error that says how to bring it
 *
 * HOST is the one that HF_ENDPOINT names, which the token goes to: another one is refused by name.
 */
#ifndef TERN_HUB_ADDRESS_H
#define TERN_HUB_ADDRESS_H

#include "hub/repo.h"

/* Whether `text` is meant as an address: it has a scheme, or begins with a host of the hub. */
bool address_is_one(const char *text, const char *endpoint);
/* ORG/NAME[@REV], or an address. TERN_E_USAGE with what to do. */
tern_status address_parse(const char *text, const char *endpoint, hub_repo *out, tern_error *err);

#endif
