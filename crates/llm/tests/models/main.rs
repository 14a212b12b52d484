//! A small model of every architecture: llama.cpp's logits, on every device, however its tokens are fed, and what a
//! damaged one does. `scripts/architecture-goldens.py` made the headers, and `scripts/gemma4-goldens.py` that of
//! Gemma 4, with logits of `transformers`.

mod adapters;
mod common;
mod diffusion;
mod encoders;
mod engine;
mod faults;
mod feeding;
mod folders;
mod goldens;
mod recurrent;
mod windows;

use std::process::ExitCode;

use rustorch_testing::fetched::minilm;
use rustorch_testing::{Suite, always, tests};

use common::{find_metal, find_opencl};

fn main() -> ExitCode {
    let devices = tests![
        diffusion::on_a_device,
        encoders::on_a_device,
        goldens::on_a_device,
        feeding::a_shared_table_is_one_tensor,
        feeding::experts_leave_a_small_device,
        feeding::experts_on_the_processor,
        feeding::layers_on_two_devices,
        feeding::tensors_on_two_devices,
        windows::on_two_devices,
    ];
    Suite::new()
        .always(always![
            adapters::all_parts_of_gemma4_are_extended,
            adapters::experts_are_extended,
            adapters::other_shapes_are_refused,
            diffusion::a_step_fills_the_surest_tokens,
            diffusion::on_the_cpu,
            diffusion::sessions_refuse_it,
            encoders::dense_products,
            encoders::in_batches,
            encoders::on_the_cpu,
            encoders::pooling,
            encoders::what_a_model_lacks_is_one_error,
            engine::every_architecture_in_company,
            faults::an_unknown_architecture_is_one_short_line,
            faults::absent_and_other_keys_are_seen,
            faults::all_that_is_wrong_is_one_error,
            faults::all_that_is_wrong_with_tensors_is_one_error,
            faults::contradictions_are_named,
            faults::impossible_keys_are_refused,
            faults::keys_that_are_left_out_are_not_seen,
            faults::other_weights_are_seen,
            faults::types_that_weights_may_not_have_are_one_error,
            folders::a_list_of_words_is_a_vocabulary,
            folders::long_texts_are_cut,
            folders::modules_that_are_unknown_are_refused,
            folders::predictions_are_left_out,
            folders::vectors_are_those_of_transformers,
            feeding::after_a_failure_while_rebuilding,
            feeding::after_a_loss,
            feeding::after_truncation,
            feeding::in_pieces,
            feeding::token_by_token,
            goldens::every_architecture_has_a_model,
            goldens::on_the_cpu,
            recurrent::after_a_loss,
            recurrent::after_any_history,
            recurrent::in_company,
            recurrent::in_company_that_fails,
            recurrent::kernels_have_bounds,
            recurrent::prefixes_end_with_a_state,
            recurrent::states_are_counted,
            recurrent::states_of_others_stay,
            recurrent::with_drafts,
            windows::a_full_context_is_shifted,
            windows::a_pass_has_no_more_tokens_than_fit,
            windows::after_a_failure,
            windows::after_a_loss,
            windows::after_truncation,
            windows::chunks_are_windows,
            windows::files_hold_the_window,
            windows::keys_of_every_type_move,
            windows::logits_are_those_of_all_rows,
            windows::memory_is_that_of_a_window_and_a_batch,
            windows::texts_are_those_of_all_rows,
        ])
        .on(
            minilm(),
            "RUSTORCH_TEST_MODELS",
            tests![folders::minilm_agrees_with_sentence_transformers],
        )
        .on(find_opencl(), "RUSTORCH_TEST_OPENCL", devices)
        .on(find_metal(), "RUSTORCH_TEST_METAL", devices)
        .run()
}
