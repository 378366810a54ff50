/* hopper_shape.cuh: one instance of the warpgroup kernel: its sizes, and where things lie in shared memory.
 */
#ifndef ATTN_CUDA_HOPPER_SHAPE_CUH
#define ATTN_CUDA_HOPPER_SHAPE_CUH

#include "hopper_item.cuh"

namespace
{

enum { SHARED_MOST = 232448 }; /* bytes a block may have */

/* DK_, DV: head sizes; WIDTH: columns of a box in shared memory; QS: buffers of Q; MAP: walks lists of key
 * blocks; BLOCKS: of a multiprocessor; STAGES: tiles of K, and of V; TURNS: warpgroups issue one after the
 * other. */
template <typename T_, int DK_, int DV_, int GROUPS_, int KEYS_, int WIDTH_, int QS_, int MAP_ = 0,
          int BLOCKS_ = 1, int STAGES_ = 2, int TURNS_ = 1>
struct shape {
    using T = T_;
    static constexpr bool MAP = MAP_;
    using Item = std::conditional_t<MAP, hopper_listed_item, hopper_item>;
    static constexpr int BLOCKS = BLOCKS_, HALVES = MAP ? KEYS_ / 64 : 0;
    static constexpr int DK = (DK_ + 15) / 16 * 16, DV = DV_, GROUPS = GROUPS_, KEYS = KEYS_, WIDTH = WIDTH_,
                         QS = QS_, TURNS = GROUPS > 1 && TURNS_;
    static constexpr int THREADS = (GROUPS + 1) * 128, KS = STAGES_, VS = STAGES_, ROW = WIDTH * 2;
    static constexpr int Q_BOXES = (DK + WIDTH - 1) / WIDTH, V_BOXES = (DV + WIDTH - 1) / WIDTH,
                         O_BOXES = Q_BOXES > V_BOXES ? Q_BOXES : V_BOXES;
    /* Bytes: of boxes, of one group's queries (or outputs), of tiles. */
    static constexpr int Q_BOX = 64 * ROW, KV_BOX = KEYS * ROW, Q_GROUP = O_BOXES * Q_BOX,
                         K_BYTES = Q_BOXES * KV_BOX, V_BYTES = V_BOXES * KV_BOX;
    static constexpr int K = QS * GROUPS * Q_GROUP, V = K + KS * K_BYTES, LOW = V + VS * V_BYTES;
    /* Items listed ahead, each with its rows' intervals. */
    static constexpr int ROWS = GROUPS * 64, ITEM_BYTES = ROWS * 8 + (int)sizeof(Item),
                         ITEMS = MAP                                         ? QS + 1
                                 : LOW + 4 * ITEM_BYTES + 256 <= SHARED_MOST ? 4
                                                                             : 2;
    static constexpr int HIGH = LOW + ITEMS * ROWS * 4, ITEM = HIGH + ITEMS * ROWS * 4;
    /* Barriers, of 8 bytes. */
    static constexpr int ITEM_FULL = ITEM + ITEMS * (int)sizeof(Item), ITEM_EMPTY = ITEM_FULL + ITEMS * 8,
                         Q_FULL = ITEM_EMPTY + ITEMS * 8, O_FULL = Q_FULL + QS * GROUPS * 8,
                         O_BOXED = O_FULL + QS * GROUPS * 8, K_FULL = O_BOXED + QS * GROUPS * 8,
                         K_EMPTY = K_FULL + KS * 8, V_FULL = K_EMPTY + KS * 8, V_EMPTY = V_FULL + VS * 8,
                         PIECE = V_EMPTY + VS * 8, BYTES = PIECE + KS * HALVES * 8;
    /* Of a thread, after the groups have shared out what the block has. */
    static constexpr int LAUNCH_REGISTERS = 65536 / (BLOCKS * THREADS) / 8 * 8,
                         LOADER_REGISTERS = GROUPS == 3                  ? 32
                                            : GROUPS == 1 && BLOCKS == 1 ? 56
                                                                         : 24,
                         SHARE = (LAUNCH_REGISTERS * (GROUPS + 1) - LOADER_REGISTERS) / GROUPS / 8 * 8,
                         REGISTERS = SHARE < 248 ? SHARE : 248;
    static_assert(sizeof(Item) % 8 == 0 && BYTES <= SHARED_MOST / BLOCKS - (BLOCKS - 1) * 512,
                  "shared memory");
    static_assert(!MAP || KEYS % 64 == 0, "pieces of a map have 64 keys or 128");
};

/* A place in a ring of SIZE, and the parity of its use. */
template <int SIZE> struct place {
    uint32_t at, parity;
    __device__ __forceinline__ void next()
    {
        at = at + 1 == SIZE ? 0 : at + 1;
        parity ^= at == 0;
    }
};

/* Place of number n. */
template <int SIZE> __device__ __forceinline__ place<SIZE> place_of(uint32_t n)
{
    return {n % SIZE, n / SIZE % 2};
}

} // namespace

#endif
