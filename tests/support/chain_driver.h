// Drives decoding sequences to their end as the stream loop does, with a function in place of the
// model: whoever calls gives every pass its rows.
#pragma once

#include <span>
#include <vector>

#include "engine/decoding/chain_sequence.h"

namespace tessera {

// `pass(sequence)` verifies one pass of one sequence; the first pass has a single row. The next ones
// have at most `width(sequence)` rows.
template <typename Real, typename Random, typename Width, typename Pass>
void drive_chains(std::vector<ChainSequence<Real, Random>>& sequences,
                  const ChainParts<Real, Random>& parts, Width&& width, Pass&& pass) {
  if (parts.drafter != nullptr) parts.drafter->start(sequences.size());
  for (auto& sequence : sequences) pass(sequence);
  std::vector<DraftJob<Real, Random>> jobs;
  while (true) {
    jobs.clear();
    for (auto& sequence : sequences) {
      if (!sequence.done()) jobs.push_back(sequence.draft_job(width(sequence)));
    }
    if (jobs.empty()) return;
    if (parts.drafter != nullptr) parts.drafter->extend(jobs);
    for (const auto& job : jobs) pass(sequences[job.item]);
  }
}

}  // namespace tessera
