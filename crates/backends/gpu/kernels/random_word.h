// A word of block `block` of a stream of random numbers, counted from `offset` on: each of the generator has four.
FUNCTION uint random_word(long seed, long offset, uint block, uint word) {
    const ulong at = (ulong)offset + block;
    const words4 words = philox((uint)at, (uint)(at >> 32), (uint)seed, (uint)((ulong)seed >> 32));
    // Chosen, for an index would take the words to memory.
    const uint low = word % 2 == 0 ? words.x[0] : words.x[1];
    const uint high = word % 2 == 0 ? words.x[2] : words.x[3];
    return word < 2 ? low : high;
}
