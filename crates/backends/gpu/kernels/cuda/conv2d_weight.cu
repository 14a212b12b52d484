// Gradients of a convolution's weights on the tensor cores of compute capability 9.0: the sums over all pixels of what
// they see of images, times their own gradients. Both have their channels last, see channels_last.cu, so that pixels are
// rows of operands that are multiplied column by column. A group makes a tile, ROWS output channels by COLUMNS channels of
// elements of windows, of a part of the pixels: f32 in `parts`, which conv2d_weight_sum.cu adds up. Its first warpgroup
// copies to local memory; of the others each multiplies 64 output channels.
//
// MMA: the dtype of what is multiplied, in PTX. COLUMNS: 64, 128 or 256. STAGES: of DEPTH pixels in local memory.

#define DEPTH 64
// Bytes of 64 channels of so many pixels.
#define BLOCK_BYTES (DEPTH * 128)
#define STAGE_BYTES ((ROWS + COLUMNS) / 64 * BLOCK_BYTES)
#define COPIERS 128
// Pixels that are copied at a time, by eight lanes each.
#define LINES (COPIERS / 8)
#define FULL(stage) (barriers + (stage))
#define FREE(stage) (barriers + STAGES + (stage))

FUNCTION void copy_16(uint to, const ushort* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// The same for what other work-items of the group copy as well.
FUNCTION void copy_16_cached(uint to, const ushort* from, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

#define FLOATS_64(x, i) FLOATS_32(x, i), FLOATS_32(x, i + 32)
#define REGISTERS_128 \
    REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
    "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, " \
    "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Adds 16 pixels: 64 columns of `a` by COLUMNS of `b`.
FUNCTION void multiply_pixels(float* sum, ulong a, ulong b) {
#define BEGIN "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"
#define OPTIONS ", adds, 1, 1, 1, 1;\n}"
#if COLUMNS == 64
    asm volatile(BEGIN WGMMA(64) " {" REGISTERS_32 "}, %32, %33" OPTIONS
                 : FLOATS_32(sum, 0) : "l"(a), "l"(b));
#elif COLUMNS == 128
    asm volatile(BEGIN WGMMA(128) " {" REGISTERS_64 "}, %64, %65" OPTIONS
                 : FLOATS_64(sum, 0) : "l"(a), "l"(b));
#else
    asm volatile(BEGIN WGMMA(256) " {" REGISTERS_128 "}, %128, %129" OPTIONS
                 : FLOATS_64(sum, 0), FLOATS_64(sum, 64) : "l"(a), "l"(b));
#endif
}

KERNEL_BEGIN
    LAUNCH_NEXT;
    LOCAL_ARRAY(ulong, barriers, 2 * STAGES);
    const uint base = (local_address(DYNAMIC_LOCAL) + 1023) / 1024 * 1024;
    if (LANE == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(FULL(i), COPIERS);
            barrier_init(FREE(i), ROWS / 16);
        }
        barrier_fence();
    }
    BARRIER;
    // Groups that work at the same time share pixels.
    const uint tile = GROUP_ID(0) % p.tiles, part = GROUP_ID(0) / p.tiles;
    const uint first_row = tile % p.row_tiles * ROWS, first_column = tile / p.row_tiles * COLUMNS;
    const uint first = part * p.chunks_each;
    const uint count = min(p.chunks_each, p.chunks - min(first, p.chunks));
    uint stage = 0, phase = 0;

    if (SIMD_GROUP < 4) {
#if ROWS == 128
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
#endif
        const uint piece = LANE % 8, line = LANE / 8;
        // What of windows this work-item copies.
        uint down[COLUMNS / 64], right[COLUMNS / 64], place[COLUMNS / 64];
        bool has[COLUMNS / 64];
        UNROLL for (uint b = 0; b < COLUMNS / 64; b++) {
            const uint at = first_column / 8 + b * 8 + piece, tap = at / p.pieces_count;
            has[b] = tap < p.kernel_size[0] * p.kernel_size[1];
            down[b] = tap / p.kernel_size[1] * p.dilation[0];
            right[b] = tap % p.kernel_size[1] * p.dilation[1];
            place[b] = at % p.pieces_count * 8;
        }
        // The pixels that it copies.
        uint image[DEPTH / LINES], y[DEPTH / LINES], x_of[DEPTH / LINES];
        UNROLL for (uint j = 0; j < DEPTH / LINES; j++) {
            const uint pixel = first * DEPTH + j * LINES + line;
            image[j] = pixel / p.plane;
            y[j] = pixel % p.plane / p.out_width;
            x_of[j] = pixel % p.plane % p.out_width;
        }
        for (uint i = 0; i < count; i++) {
            barrier_wait(FREE(stage), phase ^ 1);
            const uint to = base + stage * STAGE_BYTES;
            UNROLL for (uint j = 0; j < DEPTH / LINES; j++) {
                const uint row = j * LINES + line;
                const uint to_row = to + row * 128 + (piece ^ row % 8) * 16;
                const bool exists = image[j] < p.images;
                const uint pixel = (first + i) * DEPTH + row;
                const ushort* from = ct + (ulong)pixel * p.ct_channels;
                UNROLL for (uint a = 0; a < ROWS / 64; a++) {
                    const uint channel = first_row + a * 64 + piece * 8;
                    const bool is_there = exists && channel < p.ct_channels;
                    copy_16(to_row + a * BLOCK_BYTES, is_there ? from + channel : ct, is_there);
                }
                // Positions in the padding before the first wrap, and are behind the last as well.
                const uint top = y[j] * p.stride[0] - p.padding[0];
                const uint left = x_of[j] * p.stride[1] - p.padding[1];
                UNROLL for (uint b = 0; b < COLUMNS / 64; b++) {
                    const uint at = top + down[b], column = left + right[b];
                    const bool is_there = exists && has[b] && at < p.size[0] && column < p.size[1];
                    const uint seen = (image[j] * p.size[0] + at) * p.size[1] + column;
                    const ushort* from = x + ((ulong)seen * (p.pieces_count * 8) + place[b]);
                    copy_16_cached(to_row + (ROWS / 64 + b) * BLOCK_BYTES, is_there ? from : x,
                                   is_there);
                }
                // DEPTH pixels further.
                x_of[j] += p.step[2];
                if (x_of[j] >= p.out_width) x_of[j] -= p.out_width, y[j]++;
                y[j] += p.step[1];
                if (y[j] >= p.out_height) y[j] -= p.out_height, image[j]++;
                image[j] += p.step[0];
            }
            arrive_after_copies(FULL(stage));
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
#if ROWS == 128
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
#endif
        const uint warpgroup = SIMD_GROUP / 4 - 1;
        float sum[COLUMNS / 2];
        UNROLL for (uint i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
        // The stage whose products may be under way, if there is one.
        uint last = STAGES;
        for (uint i = 0; i < count; i++) {
            barrier_wait(FULL(stage), phase);
            COPIES_TO_PRODUCTS;
            const uint from = base + stage * STAGE_BYTES;
            const ulong a = descriptor(from + warpgroup * BLOCK_BYTES, BLOCK_BYTES);
            const ulong b = descriptor(from + ROWS / 64 * BLOCK_BYTES, BLOCK_BYTES);
            BEGIN_PRODUCTS;
            UNROLL for (uint s = 0; s < DEPTH / 16; s++) {
                multiply_pixels(sum, a + s * (16 * 128 / 16), b + s * (16 * 128 / 16));
            }
            END_PRODUCTS;
            WAIT_PRODUCTS(1);
            if (last < STAGES && SIMD_LANE == 0) arrive(FREE(last));
            last = stage;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        WAIT_PRODUCTS(0);
        renew(sum, COLUMNS / 2);
        const uint row = first_row + warpgroup * 64 + SIMD_GROUP % 4 * 16 + SIMD_LANE / 4;
        UNROLL for (uint i = 0; i < COLUMNS / 2; i += 2) {
            const uint own = row + i / 2 % 2 * 8;
            const uint column = first_column + i / 4 * 8 + SIMD_LANE % 4 * 2;
            if (own < p.outputs && column < p.columns) {
                const ulong at = ((ulong)part * p.outputs + own) * p.columns + column;
                *(float2*)(parts + at) = make_float2(sum[i], sum[i + 1]);
            }
        }
    }
KERNEL_END
