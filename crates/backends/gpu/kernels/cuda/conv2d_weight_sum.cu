// Adds up the parts of a convolution's gradients of weights that conv2d_weight.cu makes, in their order: a work-item for
// each channel of an element of windows. Y: dtype of the result, which is where strides say. TOGETHER: elements of a line of
// windows that share p.padded channels, as pixels do in channels_last.cu.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint row = i / p.columns, column = i % p.columns;
        const uint share = p.padded / TOGETHER;
        const uint tap = column / p.padded, channel = column % share;
        const uint right = tap % p.kernel_pieces * TOGETHER + column % p.padded / share;
        if (channel < p.channels && right < p.kernel_width) {
            float sum = 0;
            // Loads are under way together.
            _Pragma("unroll 16")
            for (uint part = 0; part < p.parts_count; part++) {
                sum += parts[(ulong)part * p.count + i];
            }
            const ulong at = (ulong)row * p.strides[0] + (ulong)channel * p.strides[1]
                + (ulong)(tap / p.kernel_pieces) * p.strides[2] + (ulong)right * p.strides[3];
            STORE(Y, y, at, sum);
        }
    }
KERNEL_END
