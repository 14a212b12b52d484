// How four SIMD-groups make a tile of a product: ROWS x COLUMNS, each SIMD-group a quarter of it
// as matrices of 8 x 8. Slabs of DEPTH go through local memory, in rows along k.

#define DEPTH 32
// Rows are longer by what puts their beginnings into different banks.
#define STEP (DEPTH + 4)
#define QUARTER_ROWS (ROWS / 2)
#define QUARTER_COLUMNS (COLUMNS / 2)
#define MATRICES_ACROSS (QUARTER_COLUMNS / 8)
#define MATRICES (QUARTER_ROWS / 8 * MATRICES_ACROSS)

// `tile` is what SLABS declares: the slabs, and in the end the product.
#define SLABS LOCAL_ARRAY(float, tile, (ROWS + COLUMNS) * STEP)
#define A_AT(row, k) tile[(row) * STEP + (k)]
#define B_AT(column, k) tile[(ROWS + (column)) * STEP + (k)]

#define QUARTER_ROW (SIMD_GROUP / 2 * QUARTER_ROWS)
#define QUARTER_COLUMN (SIMD_GROUP % 2 * QUARTER_COLUMNS)

#define SUMS \
    simdgroup_float8x8 sums[MATRICES]; \
    UNROLL for (uint i_ = 0; i_ < MATRICES; i_++) { \
        sums[i_] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); \
    }

// Adds the product of the slabs.
#define ADD_SLABS \
    UNROLL for (uint k_ = 0; k_ < DEPTH; k_ += 8) { \
        simdgroup_float8x8 a_[QUARTER_ROWS / 8], b_[MATRICES_ACROSS]; \
        UNROLL for (uint i_ = 0; i_ < QUARTER_ROWS / 8; i_++) { \
            simdgroup_load(a_[i_], &A_AT(QUARTER_ROW + i_ * 8, k_), STEP); \
        } \
        UNROLL for (uint i_ = 0; i_ < MATRICES_ACROSS; i_++) { \
            simdgroup_load(b_[i_], &B_AT(QUARTER_COLUMN + i_ * 8, k_), STEP, 0, true); \
        } \
        UNROLL for (uint i_ = 0; i_ < MATRICES; i_++) { \
            simdgroup_multiply_accumulate(sums[i_], a_[i_ / MATRICES_ACROSS], \
                                          b_[i_ % MATRICES_ACROSS], sums[i_]); \
        } \
    }

// Puts the product where the slabs were, for PRODUCT_AT.
#define PUT_SUMS \
    UNROLL for (uint i_ = 0; i_ < MATRICES; i_++) { \
        const uint row_ = QUARTER_ROW + i_ / MATRICES_ACROSS * 8; \
        const uint column_ = QUARTER_COLUMN + i_ % MATRICES_ACROSS * 8; \
        simdgroup_store(sums[i_], &PRODUCT_AT(row_, column_), COLUMNS); \
    } \
    BARRIER
#define PRODUCT_AT(row, column) tile[(row) * COLUMNS + (column)]
