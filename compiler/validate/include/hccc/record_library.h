// record_library.h: records a library's description. Included by record_text.h and
// record_entry.h, which give it HCCC_BY_NAME, hccc_some_stream and what a launch was given;
// compiler/validate/library_facts.py has the rows. The translation unit defines
//
//   HCCC_DESCRIBE   the function that describes the library
//   HCCC_SAYS       "name", "compiler", "target", "collective", "own_ops"
#pragma once

static void hccc_put_fact(long long value) {
  hccc_put_row(HCCC_LIBRARY, static_cast<int>(value));
}

static void hccc_put_long_fact(unsigned long long value) {
  hccc_put_fact(static_cast<int>(static_cast<unsigned>(value & 0xffffffffULL)));
  hccc_put_fact(static_cast<int>(static_cast<unsigned>(value >> 32)));
}

// Records the library's description. same_launch: whether its function launches as the entry by
// names.
static void hccc_record_library(bool (*same_launch)(hccc_launch_function*)) {
  static const char* const says[] = {HCCC_SAYS};
  const hccc_library* one = HCCC_DESCRIBE();
  const char* const said[] = {one->name, one->compiler, one->target, one->collective, one->own_ops};
  hccc_put_fact(one == hccc_this_library() && one->size == sizeof *one && one->abi == HCCC_ABI);
  for (int k = 0; k < 5; ++k) hccc_put_fact(said[k] && !strcmp(said[k], says[k]));
  hccc_put_fact(one->n_ranks), hccc_put_fact(one->root), hccc_put_fact(one->reduces);
  hccc_put_fact(one->touches_peers);
  hccc_put_long_fact(one->digest);
  for (int rank = 0; rank < hccc_record->ranks; ++rank) {
    hccc_put_fact(one->domain ? one->domain[rank] : 0);
    hccc_put_fact(one->input_blocks(rank)), hccc_put_fact(one->output_blocks(rank));
  }
  hccc_put_fact(one->catalogue->n_plans);
  for (int k = 0; k < one->catalogue->n_plans; ++k) {
    const hccc_shape& s = *one->catalogue->shapes[k];
    const int values[] = {s.ranks, s.sub,    s.channels, s.blocks, s.flags, s.scratch,
                          s.stage, s.queues, s.sends,    s.slots,  s.grain, s.packets, s.lines};
    for (int value : values) hccc_put_fact(value);
  }
  hccc_put_fact(one->catalogue->n_ranges);
  for (int k = 0; k < one->catalogue->n_ranges; ++k) {
    const hccc_range& range = one->catalogue->ranges[k];
    hccc_put_fact(range.in_place), hccc_put_fact(range.plan), hccc_put_fact(range.window);
    hccc_put_fact(range.grain), hccc_put_long_fact(static_cast<unsigned long long>(range.begin));
  }
  hccc_put_fact(same_launch(one->launch));
}
