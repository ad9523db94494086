/* profile.h - what tern claims to run, how well that is shown, and by what: resolved before weights are opened.
 *
 * Three tiers. A *targeted* profile is for one artifact, an immutable snapshot of a hub repository, and for the one
 * configuration that it has; a *family* profile is for a set of descriptor rows that share an execution; a *generic*
 * one is made from the descriptor row itself. The exact artifact wins over the family, the family over the row. Nothing
 * downgrades: a targeted profile whose config fingerprint differs refuses, and so does any profile that needs what the
 * build does not have or that contradicts itself; the next tier is not tried. docs/profiles.md has the rules.
 *
 * Registries are data that the resolver is given. Choices of a request (sampling, KV size, adapters) are no part of a
 * profile.
 */
#ifndef TERN_MODEL_PROFILE_H
#define TERN_MODEL_PROFILE_H

#include "base/sha256.h"
#include "model/arch.h"

/* What every claim is measured against. */
#define PROFILE_ORACLE "mlx-lm 0.31.3 on mlx-cpu 0.31.2"

typedef enum profile_tier { TIER_GENERIC, TIER_FAMILY, TIER_TARGETED } profile_tier;

typedef enum profile_level {
  LEVEL_L1, /* bit-identical to the reference */
  LEVEL_L2, /* bit-identical to the reference once stated faults of it are corrected */
  LEVEL_L3, /* measured against exact, and close: numerics fast, of any row */
} profile_level;

typedef enum profile_loader {
  LOADER_PLAIN,   /* the row's own names */
  LOADER_WRAPPED, /* a text model's names behind a prefix, beside towers that are dropped */
} profile_loader;

typedef enum profile_graph {
  GRAPH_DENSE,      /* the dense decoder's plan */
  GRAPH_DENSE_TEXT, /* the same for the text model of a wrapper */
} profile_graph;

typedef enum profile_loop {
  LOOP_UNIFORM, /* reading and stepping have the same bits: state may be reused at any position */
  LOOP_SPLIT,   /* they may differ: the canonical split counts */
} profile_loop;

typedef enum profile_special { SPECIAL_NONE } profile_special;

/* What a build has or has not. PROFILE_NEEDS names them. */
typedef enum profile_capability {
  CAP_DENSE = 1u << 0,   /* dense decoders */
  CAP_WRAPPED = 1u << 1, /* text models inside wrappers */
  CAP_WINDOWS = 1u << 2, /* layers that see a window */
  CAP_GROWN = 1u << 3,   /* a rope whose base grows with the length */
  CAP_TERNARY = 1u << 4, /* packed ternary weights */
  CAP_EXACT = 1u << 5,
  CAP_NATIVE = 1u << 6,
  CAP_FAST = 1u << 7,
} profile_capability;

enum { CAPABILITIES = 8, PROFILE_MAX_TYPES = 32, ARTIFACT_REVISION = 41 };

typedef struct profile_execution {
  profile_loader loader;
  profile_graph graph;
  profile_loop loop;
  profile_special special;
} profile_execution;

typedef struct profile_row {
  const char *id; /* without the tier: "llama" */
  profile_tier tier;
  const char *repo, *revision;          /* targeted: "org/name", 40 lower-case hex digits */
  const char *fingerprint;              /* targeted: of the configuration, 64 lower-case hex digits */
  const char *types[PROFILE_MAX_TYPES]; /* rows that it is for, by arch.name; NULL ends */
  profile_level level;
  const char *oracle;
  uint32_t needs; /* capabilities besides those of the descriptor row */
  profile_execution run;
} profile_row;

typedef struct profile_registry {
  const profile_row *rows;
  size_t n;
  uint32_t offers; /* capabilities of the build */
} profile_registry;

/* Which snapshot a directory is; repo "" where it is none. */
typedef struct profile_artifact {
  char repo[256]; /* "org/name" */
  char revision[ARTIFACT_REVISION];
} profile_artifact;

typedef struct model_profile {
  const arch *arch;
  profile_tier tier;
  char id[64];           /* "generic:llama" */
  const char *fidelity;  /* "L1" */
  const char *oracle;    /* PROFILE_ORACLE */
  char claim[400];       /* one sentence */
  const char *corrected; /* L2: what was corrected in the reference, a clause; L1: NULL */
  uint32_t needs;        /* all of them */
  profile_execution run;
  profile_artifact artifact;
  char fingerprint[SHA256_HEX]; /* of the configuration; "" in what profile_generic makes */
} model_profile;

/* What is to be resolved. */
typedef struct profile_subject {
  const arch *arch; /* the row of config.json's model_type */
  const model_config *config;
  bool ternary; /* the quantisation config asks for ternary linears */
  tern_numerics numerics;
  const profile_artifact *artifact; /* NULL: none */
} profile_subject;

/* The registry of this build. Every profile in it today is generic: it has no rows. */
const profile_registry *profile_builtin(void);

/* The row of a config's model_type. TERN_E_UNSUPPORTED names the nearest rows (model/nearest.h). `dir` (may be NULL) is
 * where tensors' names may be looked up for that. */
tern_status profile_arch(const cfg *c, const char *dir, const arch **out, tern_error *err);
/* TERN_E_UNSUPPORTED says what does not fit. */
tern_status profile_resolve(const profile_registry *g, const profile_subject *s, model_profile *out, tern_error *err);
/* What is claimed of any checkpoint of a type, as far as that can be said without a config. */
void profile_generic(const arch *a, tern_numerics numerics, model_profile *out);
/* The generic tier's row, with its id and types pointing into `a`. `ternary` as in profile_subject. */
profile_row profile_generic_row(const arch *a, bool ternary);

/* Whether a row can be what it says for descriptor row `a` in a build that offers `offers`: its oracle is the pinned
 * one, its level fits what was corrected (`corrected`, NULL: nothing), loader, graph and loop fit each other and the
 * descriptor, and nothing that it needs is missing. Pure. */
tern_status profile_check(const profile_row *row, const arch *a, const char *corrected, uint32_t offers,
                          tern_error *err);
/* Whether rows are well-formed and no two of them claim the same artifact or the same type, and each passes
 * profile_check for every type that it names. For tests of registries. */
tern_status profile_registry_check(const profile_registry *g, tern_error *err);

/* From a path .../models--ORG--NAME/snapshots/COMMIT, links resolved; any other directory gives repo "". */
void profile_artifact_of(const char *dir, profile_artifact *out);

const char *profile_tier_name(profile_tier tier);
const char *profile_loader_name(profile_loader loader);
const char *profile_graph_name(profile_graph graph);
const char *profile_loop_name(profile_loop loop);
const char *profile_special_name(profile_special special);
/* Of bit `i` of a set of capabilities. */
const char *profile_capability_name(int i);

#endif
