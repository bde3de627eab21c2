// A ring of stages in shared memory between a producer and consumers, and the registers that each of them has.
#pragma once

#include "../../common/hopper.cuh"

// One thread's view of it: the stage that it is at, and the parity of the phase of that stage's barriers.
template <int STAGES>
struct Ring {
  const unsigned barriers;
  int stage = 0;
  unsigned phase = 0;

  static constexpr int BYTES = STAGES * 16;

  __device__ __forceinline__ explicit Ring(unsigned address) : barriers(address) {}

  // The barrier that counts what has come into the stage, and the one that counts who is done with it.
  __device__ __forceinline__ unsigned arrived() const { return barriers + stage * 8; }
  __device__ __forceinline__ unsigned released() const { return barriers + (STAGES + stage) * 8; }
  // The latter of the stage that lies `steps` before this one, at most as many as there are stages.
  __device__ __forceinline__ unsigned released_before(int steps = 1) const {
    return barriers + (STAGES + (stage < steps ? stage + STAGES - steps : stage - steps)) * 8;
  }

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }

  // Past stages that are others'.
  __device__ __forceinline__ void skip(int stages) {
    stage += stages;
    phase ^= stage / STAGES & 1;
    stage %= STAGES;
  }

  // By one thread, before anyone uses the ring.
  __device__ __forceinline__ void init(int consumers) const {
    for (int s = 0; s < STAGES; ++s) {
      hopper::mbarrier_init(barriers + s * 8, 1);
      hopper::mbarrier_init(barriers + (STAGES + s) * 8, consumers);
    }
    hopper::mbarrier_init_fence();
  }
};

// The registers of a block of a producer warpgroup and `Consumers` others, of which `Blocks` share 65 536, a thread of
// each: what the threads begin with, which comes in eights. What is asked for beyond that would be waited for without
// end. With 24 or 32 for the producer, the compiler spills where there are clusters.
template <int Consumers, int Blocks = 1>
constexpr int BLOCK_REGISTERS = (Consumers + 1) * (65536 / ((Consumers + 1) * 128 * Blocks) / 8 * 8);
template <int Consumers, int Blocks = 1>
constexpr int PRODUCER_REGISTERS = 40;
template <int Consumers, int Blocks = 1>
constexpr int CONSUMER_REGISTERS =
    (BLOCK_REGISTERS<Consumers, Blocks> - PRODUCER_REGISTERS<Consumers, Blocks>) / Consumers < 240
        ? (BLOCK_REGISTERS<Consumers, Blocks> - PRODUCER_REGISTERS<Consumers, Blocks>) / Consumers / 8 * 8
        : 240;
