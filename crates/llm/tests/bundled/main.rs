//! The bundled model and a fetched one: llama.cpp's answers, on every device, and when devices fail.

mod adapters;
mod common;
mod coreml;
mod engine;
mod f32_hybrid;
mod faults;
mod goldens;
mod hugging_face;
mod layers;
mod queued;
mod saved;
mod selection;
mod smollm2;
mod soak;
mod speculation;
mod zero_copy;

use std::process::ExitCode;

use rustorch_testing::fetched::smollm2;
use rustorch_testing::{Suite, always, tests};

use common::{find_metal, find_opencl};

fn main() -> ExitCode {
    let opencl = tests![
        adapters::adapters_on_opencl,
        layers::layers_are_computed_where_they_were_sent,
        faults::every_fault_of_an_opencl_device_at_every_kernel_of_every_token,
        goldens::on_opencl,
    ];
    let metal = tests![
        adapters::adapters_on_emulated_metal,
        coreml::half_precision_of_the_mac_hybrid_keeps_the_perplexity,
        coreml::the_mac_hybrid_chooses_the_tokens_of_the_cpu,
        faults::every_fault_of_a_metal_device,
        goldens::on_emulated_metal,
    ];
    let all_four = tests![coreml::the_chain_is_walked_to_its_end];
    let in_place = tests![zero_copy::a_device_in_host_memory_copies_no_byte];
    Suite::new()
        .always(always![
            adapters::adapters_are_what_merged_weights_are,
            adapters::quantised_weights_take_adapters,
            adapters::a_table_takes_an_adapter_and_its_head_does_not,
            adapters::a_scale_of_zero_changes_nothing,
            adapters::saved_sessions_know_what_changed_the_model,
            adapters::adapters_of_other_models_are_refused,
            adapters::control_vectors_of_other_models_are_refused,
            adapters::impossible_rotary_embeddings_are_refused,
            coreml::a_whole_transformer_is_one_program,
            coreml::core_ml_chooses_the_tokens_of_the_cpu,
            coreml::half_precision_keeps_the_perplexity,
            coreml::programs_that_keep_the_cache_choose_the_same_tokens,
            coreml::every_fault_at_every_call_of_core_ml,
            coreml::a_core_ml_that_refuses_an_operation_changes_no_token,
            coreml::the_first_token_does_not_wait_for_core_mls_compiler,
            engine::a_batch_that_fails_is_made_smaller,
            engine::a_warm_engine_makes_no_programs,
            engine::beginnings_are_shared_by_salt,
            engine::each_text_has_its_own_samplers,
            engine::faults_change_no_text,
            engine::log_probabilities_are_the_models,
            engine::texts_in_company_are_those_alone,
            engine::wrong_requests_are_refused,
            engine::a_row_is_the_same_in_company,
            engine::requests_end_before_their_texts,
            engine::random_requests_end_once,
            f32_hybrid::the_goldens_without_a_conversion_or_a_copy,
            f32_hybrid::what_it_is_compared_with_really_converts,
            f32_hybrid::doubles_are_refused_until_they_are_converted_on_purpose,
            faults::every_fault_at_every_kernel_of_a_decode_step,
            faults::a_lost_device_is_avoided_by_later_runs,
            faults::a_lost_prompt_is_fed_again,
            goldens::a_full_context_is_refused,
            layers::the_machine_is_asked_what_there_is_to_choose,
            layers::what_was_asked_for_is_not_chosen_again,
            queued::a_device_that_runs_ahead_tells_the_same_and_no_further_than_the_context,
            queued::generating_begins_one_pass_for_nothing,
            queued::loading_copies_all_that_stays,
            queued::what_was_begun_for_nothing_is_forgotten,
            queued::faults_ahead_of_the_host_change_no_token,
            saved::a_common_beginning_is_kept,
            saved::a_full_context_is_shifted,
            saved::a_saved_session_goes_on_where_it_was,
            saved::files_that_do_not_fit_are_refused,
            selection::devices_choose_what_the_host_would_choose,
            selection::suppressed_tokens_are_never_chosen,
            selection::losing_the_device_changes_no_choice,
            soak::every_text_is_right,
            speculation::up_to_eight_tokens_at_once_have_the_logits_of_each_alone,
            speculation::guesses_change_no_text,
            speculation::guesses_and_what_becomes_of_them_are_counted,
            speculation::a_text_ends_within_guesses_as_without,
            speculation::a_full_context_is_shifted_within_guesses,
            speculation::a_form_is_held_to,
            speculation::a_session_goes_on_behind_guesses,
            speculation::what_repeats_itself_is_guessed_right,
            speculation::a_device_that_runs_ahead_tells_the_same_with_guesses,
            speculation::losing_the_device_changes_no_text,
            speculation::drafts_that_do_not_fit_are_refused,
            goldens::on_the_cpu::f16,
            goldens::on_the_cpu::q8_0,
            goldens::on_the_cpu::q6_k,
            goldens::on_the_cpu::q5_k_m,
            goldens::on_the_cpu::q4_k_m,
        ])
        .on(find_opencl(), OPENCL, opencl)
        .on(coreml::find_both(), OPENCL, all_four)
        .on(find_opencl(), OPENCL, in_place)
        .on(find_metal(), METAL, metal)
        .on(find_metal(), METAL, in_place)
        .on(
            smollm2(),
            MODELS,
            tests![
                smollm2::goldens_on_the_cpu,
                smollm2::perplexity_on_the_cpu,
                smollm2::infill_chooses_the_tokens_of_llama_cpp,
                smollm2::quantised_as_llama_cpp_quantises_it,
                smollm2::core_ml_chooses_the_tokens_of_the_cpu,
                hugging_face::a_folder_of_transformers_is_the_same_model,
            ],
        )
        .on(
            smollm2().and_then(|file| Ok((file, find_opencl().map_err(|e| e.to_string())?))),
            MODELS,
            tests![smollm2::goldens_on_opencl],
        )
        .on(
            smollm2().and_then(|file| Ok((file, find_metal().map_err(|e| e.to_string())?))),
            MODELS,
            tests![smollm2::goldens_on_emulated_metal],
        )
        .run()
}

const OPENCL: &str = "RUSTORCH_TEST_OPENCL";
const MODELS: &str = "RUSTORCH_TEST_MODELS";
const METAL: &str = "RUSTORCH_TEST_METAL";
