/* fetch.h - the bytes of a plan's files into blobs, over several connections at once. */
#ifndef TERN_HUB_NET_FETCH_H
#define TERN_HUB_NET_FETCH_H

#include "hub/net/pull.h"

/* Every file's blob is there and checked afterwards, whoever wrote it. A blob that another process is at is waited for.
 * What has come stays in ETAG.incomplete, whatever the status. */
tern_status fetch_blobs(const http_settings *s, const cache_repo *r, const hub_plan *p, const hub_watch *watch,
                        tern_error *err);

#endif
