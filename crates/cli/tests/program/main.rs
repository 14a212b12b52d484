//! The program as its users meet it: arguments and standard input in; standard output, standard
//! error and an exit status out.

mod bad_input;
mod calibrate;
mod changes;
mod chat;
mod commands;
mod documents;
mod embed;
mod forms;
mod generate;
mod hybrid_f32;
mod installing;
mod onnx;
mod opencl;
mod ranks;
mod report;
mod run_batch;
mod speculation;
mod support;
mod top;
mod trace;
mod train;
mod verify;
mod webgpu;

#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod smollm2;
#[cfg(unix)]
mod tools;

use std::process::ExitCode;

#[cfg(unix)]
use rustorch_testing::fetched;
use rustorch_testing::{Suite, always, tests};

fn main() -> ExitCode {
    let opencl = tests![
        opencl::opencl_tells_the_same_story,
        opencl::layers_are_split_as_asked_or_as_they_fit,
        opencl::tensors_go_where_options_send_them,
        opencl::experts_stay_on_the_processor_if_asked_or_if_memory_is_short,
        opencl::places_that_make_no_sense_are_refused,
        opencl::running_out_of_memory_moves_on,
        opencl::bench_measures_the_device_that_computes,
        opencl::a_kernel_cache_that_is_of_no_use_costs_only_time,
        train::a_lost_device_costs_steps_and_no_run,
        train::values_wait_on_the_host,
        verify::a_wrong_opencl_device_is_found_too,
    ];
    let suite = Suite::new()
        .always(always![
            documents::commands_that_are_not_run_are_there,
            documents::examples_in_rust_are_doctests,
            documents::features_are_those_of_the_table,
            documents::links_lead_somewhere,
            documents::the_book_has_every_guide,
            embed::documents_have_scores,
            embed::requests_that_make_no_sense,
            embed::similarity_is_the_cosine,
            embed::texts_come_from_everywhere,
            embed::the_bundled_model_embeds,
            embed::tokens_have_vectors,
            embed::vectors_are_scaled,
            embed::vectors_go_to_files,
            bad_input::no_such_model,
            bad_input::a_folder_is_no_model,
            bad_input::a_variable_that_makes_no_sense,
            bad_input::files_that_are_no_models,
            bad_input::a_prompt_that_does_not_fit,
            bad_input::an_empty_prompt_for_a_model_that_needs_one,
            bad_input::texts_that_are_not_utf8,
            bad_input::impossible_options,
            bad_input::unknown_backends_types_and_faults,
            bad_input::tokens_outside_the_vocabulary,
            bad_input::a_text_too_short_for_its_perplexity,
            bad_input::files_that_cannot_be_read,
            bad_input::numbers_below_zero,
            bad_input::contexts_without_a_second_half,
            bad_input::files_that_would_be_lost,
            bad_input::files_that_cannot_be_written,
            onnx::outputs_are_printed_and_written,
            onnx::a_graph_is_chosen_by_a_value,
            onnx::wrong_inputs_are_named,
            onnx::files_that_are_no_onnx_models,
            calibrate::a_calibration_is_kept_and_used_until_it_is_invalid,
            calibrate::choices_are_checked_on_thirty_cases,
            calibrate::a_folder_that_takes_no_file_is_an_error,
            changes::options_mean_what_they_mean_in_llama_cpp,
            changes::of_two_scales_the_later_counts,
            changes::every_command_takes_them,
            changes::a_prompt_is_kept_with_what_changed_the_model,
            changes::adapters_are_told_from_models,
            changes::what_does_not_fit_is_told,
            chat::a_line_is_a_message,
            chat::one_turn_is_what_the_plain_command_says,
            chat::reasoning_is_told_apart,
            chat::the_plain_command_talks_on_request,
            chat::a_prompt_is_kept_in_a_file,
            chat::what_was_read_is_not_read_again,
            chat::a_conversation_is_saved_and_gone_on_with,
            chat::mistakes_are_told,
            chat::a_full_context_is_told,
            chat::an_answer_goes_on_behind_a_full_context,
            commands::help_and_version,
            commands::tokenize,
            commands::logits_of_every_position_or_the_last,
            commands::logits_need_no_vocabulary,
            commands::perplexity_as_llama_cpp_measures_it,
            commands::quantize_and_run_the_result,
            commands::a_folder_of_transformers_runs_and_becomes_a_file,
            commands::inspect,
            commands::inspect_reports_the_memory_of_a_context,
            commands::a_model_that_does_not_fit_is_reported_before_it_is_loaded,
            commands::devices_found_and_missing,
            commands::explain_places_every_operation,
            commands::batched_bench_counts_the_tokens_of_all_texts,
            run_batch::requests_of_a_file_are_answered_once,
            run_batch::wrong_requests_of_a_file_are_told,
            commands::bench_rows_have_the_fields_of_llama_bench,
            commands::bench_makes_models_of_known_shapes,
            commands::bench_measures_steps_of_training,
            commands::bench_measures_operations,
            forms::a_text_is_json_of_its_schema,
            forms::a_text_is_of_its_grammar,
            forms::forms_that_cannot_be_held_to_are_refused,
            forms::samplers_are_applied_in_the_order_asked_for,
            forms::a_bias_makes_tokens_likely_or_impossible,
            forms::a_file_may_be_taken_as_it_is,
            forms::unknown_samplers_are_told_with_those_there_are,
            generate::json_tells_all_of_a_run,
            generate::prompt_and_text_go_to_standard_output_and_the_rest_elsewhere,
            generate::without_anything_it_tells_a_story,
            generate::a_file_runs_as_the_bundled_model_does,
            generate::prompts_come_from_files_and_pipes,
            generate::a_dash_is_standard_input,
            generate::of_an_option_that_is_given_twice_the_last_counts,
            generate::all_of_a_prompt_is_kept_on_request,
            generate::a_second_token_of_the_beginning_is_warned_of,
            generate::a_wrong_token_is_told_plainly,
            generate::a_name_need_not_be_utf8,
            generate::escapes_are_read_on_request,
            generate::a_seed_repeats_a_text,
            generate::the_size_of_batches_does_not_change_the_text,
            generate::the_type_of_the_cache_does_not_change_the_text,
            generate::the_end_of_the_context_ends_the_text,
            generate::special_tokens_are_read_and_shown_on_request,
            generate::a_device_that_fails_changes_nothing_but_the_report,
            generate::the_definition_tells_the_same_story,
            hybrid_f32::the_same_story_without_a_conversion,
            hybrid_f32::routes_and_failures_are_as_with_any_backend,
            hybrid_f32::the_rules_are_explained,
            hybrid_f32::without_a_gpu_it_says_that_the_cpu_does_it_all,
            hybrid_f32::the_summary_counts,
            hybrid_f32::what_would_be_converted_is_refused,
            hybrid_f32::the_mac_hybrid_needs_a_mac,
            installing::manual_pages_name_every_option_of_the_help,
            installing::a_folder_for_pages_that_cannot_be_made_is_an_error,
            installing::completions_are_there_for_every_shell,
            opencl::without_drivers_the_cpu_takes_over,
            opencl::gpus_can_be_disabled,
            report::types_on_the_cpu_and_f32_beside_others,
            report::a_page_shows_it_beside_an_older_one,
            report::what_cannot_be_compared_is_told,
            speculation::a_draft_model_changes_no_text,
            speculation::a_text_that_repeats_itself_is_guessed,
            speculation::a_device_that_fails_while_guessing_changes_no_text,
            speculation::answers_are_guessed_too,
            speculation::drafts_that_cannot_be_used_are_refused,
            train::a_text_becomes_a_model,
            train::the_name_of_its_file_is_not_in_a_model,
            train::losses_are_those_of_pytorch,
            train::a_batch_that_fits_is_chosen_and_gone_on_with,
            train::progress_is_told_to_people,
            train::less_memory_changes_no_loss,
            train::nothing_of_the_processor_waits_on_the_host,
            train::a_run_that_is_killed_goes_on_as_if_it_had_not_been,
            train::halves_learn_what_single_precision_learns,
            train::a_checkpoint_of_another_run_is_refused_and_a_damaged_one_passed_over,
            train::a_checkpoint_that_cannot_be_written_ends_nothing,
            train::a_model_learns_to_answer,
            train::all_weights_of_a_model_learn_a_text,
            train::other_architectures_learn,
            train::what_cannot_be_trained_is_told,
            top::devices_and_programs_are_told,
            top::what_makes_no_sense_is_refused,
            trace::a_run_is_traced_and_says_the_same,
            trace::failures_are_in_it_with_their_reasons,
            trace::a_file_that_cannot_be_written_costs_one_warning,
            trace::a_disk_that_becomes_full_costs_one_warning,
            verify::a_cpu_that_is_right_passes,
            verify::a_wrong_result_is_found_and_named,
            verify::other_types_are_checked_from_the_f16_file,
            verify::the_report_is_readable,
            verify::what_cannot_be_verified_is_told,
        ])
        .on(opencl::find(), OPENCL, opencl)
        .on(
            webgpu::find(),
            "RUSTORCH_TEST_WEBGPU",
            tests![
                webgpu::webgpu_generates_the_same_story,
                webgpu::a_lost_webgpu_device_moves_the_story_on,
            ],
        )
        .on(
            installing::find_bash(),
            "RUSTORCH_TEST_BASH",
            tests![installing::bash_completes_commands_and_their_options],
        )
        .on(
            installing::find_groff(),
            "RUSTORCH_TEST_GROFF",
            tests![installing::manual_pages_are_formatted_without_a_warning],
        );
    #[cfg(unix)]
    let suite = suite.always(always![
        documents::commands_run_as_they_stand,
        generate::a_warning_begins_a_line,
        train::ctrl_c_keeps_what_was_learnt,
        launch::ranks_have_torchruns_variables,
        launch::the_first_failure_ends_all,
        launch::a_signal_ends_all,
        launch::a_rank_that_does_not_end_is_killed,
        launch::a_program_that_does_not_exist,
        ranks::losses_are_those_of_one_rank,
        ranks::a_stopped_run_goes_on_with_other_ranks,
        ranks::a_killed_rank_ends_all_with_the_cause,
        ranks::a_stopped_process_ends_all_with_the_cause,
        ranks::ranks_write_the_text_of_one,
        ranks::what_ranks_cannot_do_is_told,
        serve::it_says_where_it_listens_and_ends_cleanly,
        serve::requests_of_the_page_are_answered,
        serve::keys_are_read_again,
        serve::mistakes_are_told,
        signals::ctrl_c_ends_the_text_cleanly,
        signals::ctrl_c_leaves_no_part_of_a_model,
        signals::ctrl_c_leaves_a_whole_json_object,
        signals::a_reader_that_has_enough_is_no_error,
        tools::a_tool_is_called_and_its_result_answered,
        tools::several_calls_of_an_answer_are_made,
        tools::what_is_not_approved_is_not_run,
        tools::calls_that_make_no_sense_are_told,
        tools::rounds_of_calls_are_limited,
        tools::any_template_takes_tools,
        tools::wrong_files_and_names_are_told,
    ]);
    #[cfg(target_os = "linux")]
    let suite = suite.always(always![
        train::a_text_may_be_larger_than_memory,
        generate::paths_need_not_be_utf8,
    ]);
    #[cfg(unix)]
    let suite = suite.on(
        bad_input::find_secret(),
        "RUSTORCH_TEST_PERMISSIONS",
        tests![bad_input::no_permission],
    );
    #[cfg(unix)]
    let suite = suite.on(
        opencl::find(),
        OPENCL,
        tests![documents::commands_for_opencl_run_as_they_stand],
    );
    #[cfg(unix)]
    let suite = suite
        .on(
            fetched::smollm2(),
            "RUSTORCH_TEST_MODELS",
            tests![
                smollm2::its_own_template_leads_to_the_answer_of_llama_cpp,
                smollm2::a_tool_is_called_by_a_form,
                smollm2::an_adapter_learns,
            ],
        )
        .on(
            smollm2::find_pip(),
            "RUSTORCH_TEST_MODELS",
            tests![smollm2::a_file_of_another_hash_is_refused],
        );
    #[cfg(unix)]
    let suite = suite.on(
        chat::find(),
        "RUSTORCH_TEST_TMUX",
        tests![
            chat::a_turn_on_a_terminal,
            chat::ctrl_c_ends_the_answer_and_not_the_program,
            top::a_terminal_shows_it_until_q,
            tools::a_terminal_asks_before_a_tool_is_run,
            tools::ctrl_c_ends_the_tool_and_not_the_program,
        ],
    );
    suite.run()
}

const OPENCL: &str = "RUSTORCH_TEST_OPENCL";
