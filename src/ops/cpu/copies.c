/* copies.c - the ops that move rows without arithmetic worth a vector, shared among the workers by tokens: embed,
 * select, regroup. They are bound by memory or small, so one form serves every SIMD level.
 */
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/ref/ref.h"

typedef struct copies_job {
  ops_context *cx;
  const op_record *record;
  const ops_step *step;
  int rows;
} copies_job;

/* A single row is not divided. */
static void run_copies(ops_context *cx, const op_record *record, const ops_step *step, int rows, int64_t cycles,
                       pool_fn *fn)
{
  copies_job job = {cx, record, step, rows};
  cpu_run(cx, rows > 1 ? cycles : 0, fn, &job);
}

/* A worker's tokens are a step of their own to the reference, whose embedding goes by rows. */
static void embed_share(void *user, int share, int shares)
{
  const copies_job *job = user;
  size_t begin, end;
  pool_share((size_t)job->rows, 1, share, shares, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    ops_row row = job->step->row[r];
    int first = row.first > (int)begin ? row.first : (int)begin;
    int last = row.first + row.count < (int)end ? row.first + row.count : (int)end;
    if (first >= last)
      continue;
    row.position += first - row.first;
    row.first = first;
    row.count = last - first;
    ops_step part = *job->step;
    part.rows = 1;
    part.row = &row;
    ref_embed(job->cx, job->record, &part);
  }
}

void cpu_embed(ops_context *cx, const op_record *record, const ops_step *step)
{
  run_copies(cx, record, step, step->tokens, (int64_t)step->tokens * record->embed.table->k * 8, embed_share);
}

static void select_share(void *user, int share, int shares)
{
  const copies_job *job = user;
  const struct op_select *a = &job->record->select;
  size_t begin, end;
  pool_share((size_t)job->rows, 1, share, shares, &begin, &end);
  for (size_t r = begin; r < end; r++)
    memcpy(a->y + r * (size_t)a->width, a->x + (int64_t)job->step->want[r] * a->width, (size_t)a->width * sizeof *a->x);
}

void cpu_select(ops_context *cx, const op_record *record, const ops_step *step)
{
  run_copies(cx, record, step, step->wanted, (int64_t)step->wanted * record->select.width / 4, select_share);
}

static void regroup_share(void *user, int share, int shares)
{
  const copies_job *job = user;
  struct op_regroup a = job->record->regroup;
  size_t begin, end;
  pool_share((size_t)job->rows, 1, share, shares, &begin, &end);
  size_t width = (size_t)a.width;
  for (size_t t = begin; t < end; t++)
    for (size_t i = 0; i < (size_t)a.n; i++)
      memcpy(a.y + (t * (size_t)a.n + i) * width, a.x + t * (size_t)a.x_width + (size_t)a.from[i] * width,
             width * sizeof *a.x);
}

void cpu_regroup(ops_context *cx, const op_record *record, const ops_step *step)
{
  int rows = ops_extent(record, step);
  run_copies(cx, record, step, rows, (int64_t)rows * record->regroup.n * record->regroup.width / 4, regroup_share);
}
