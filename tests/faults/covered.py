"""Which test shows that which fault is survived.

Run as a script it prints the tests' files and a selection for pytest, which is what `make faults` uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["FAULTS", "ON_A_GPU", "TESTS"]

TESTS = Path(__file__).parents[1]

FAULTS: dict[str, tuple[str, ...]] = {
    "the command is killed at any moment, with several workers": (
        "faults/test_killed.py::a_parent_killed_at_any_moment_loses_nothing_and_leaves_nobody",
        "test_build_nvcc.py::nothing_outlives_a_parent_that_is_killed",
        "test_process.py::a_child_and_its_grandchildren_end_with_a_killed_parent",
    ),
    "it is killed between storing a trial and telling the search": (
        "faults/test_killed.py::killed_between_storing_a_trial_and_telling_the_search",
    ),
    "the machine goes down with a configuration": (
        "test_tune.py::what_the_machine_went_down_with_twice_is_a_crash_and_not_run_again",
        "contract/store_contract.py::what_was_under_way_when_the_machine_went_down_is_remembered",
    ),
    "an interrupt, and a second one": (
        "cases/test_results.py::an_interrupt_keeps_every_finished_row_and_the_next_run_does_the_rest",
        "cases/test_results.py::a_signal_in_the_middle_of_a_sweep_ends_it_and_all_it_started",
        "faults/test_killed.py::a_second_interrupt_ends_at_once_with_all_that_was_started",
    ),
    "a file that lost its end": (
        "test_store.py::a_database_cut_off_at_its_end_is_recovered_and_the_damaged_file_kept",
        "test_store.py::a_log_cut_off_at_its_end_opens_and_loses_at_most_the_tail",
        "test_table.py::a_file_cut_off_opens_without_its_last_line_and_says_so",
        "test_build_cache.py::a_damaged_build_is_dropped_and_said_once",
    ),
    "a kernel that never ends": (
        "test_pool.py::a_kernel_that_never_ends_is_a_timeout_and_the_next_point_is_right",
        "test_process.py::the_grandchildren_of_a_child_killed_for_its_deadline_end_too",
    ),
    "a worker that cannot be killed": (
        "test_pool.py::a_worker_that_cannot_be_killed_makes_the_device_sick",
        "test_process.py::a_child_that_survives_sigkill_is_reported",
    ),
    "a context that is lost": (
        "test_pool.py::a_lost_context_gets_a_new_process",
        "test_pool.py::a_successor_is_proved_and_prepared_before_it_goes_on",
        "test_backend_cuda.py::a_lost_context_is_a_crash_and_sticky",
        "test_backend_cuda.py::a_device_that_computes_wrongly_fails_the_canary",
    ),
    "a process or a node of a cluster that is lost": (
        "test_cluster.py::an_actor_that_was_started_again_prepares_before_it_measures",
        "test_cluster.py::a_dead_node_that_nobody_has_noticed_yet_costs_no_row",
        "test_ray.py::a_search_loses_no_point_and_does_none_twice_whatever_is_killed",
    ),
    "a launch beyond a limit": (
        "test_backend_cuda.py::a_broken_limit_is_named_before_anything_is_launched",
        "test_pool.py::a_refused_launch_leaves_the_worker_as_it_is",
    ),
    "no memory left on the device": (
        "test_backend_cuda.py::an_allocation_is_tried_again_after_a_collection",
        "test_backend_cuda.py::an_allocation_that_fails_twice_is_out_of_memory",
        "test_backend_cuda.py::a_problem_beyond_the_memory_fails_before_anything_is_computed_and_a_small_one_passes",
    ),
    "a worker that dies": (
        "test_pool.py::a_crash_names_the_signal_and_the_culprit",
        "test_pool.py::a_crash_quotes_the_last_words",
        "test_process.py::an_outside_kill_hints_at_memory",
        "test_group.py::a_configuration_that_costs_two_devices_is_not_given_a_third",
    ),
    "a worker that dies at its start": (
        "test_pool.py::five_deaths_at_start_in_a_row_end_it_with_the_first_error_quoted",
    ),
    "a flood of output, and output that looks like a result": (
        "test_process.py::a_flood_of_output_neither_blocks_nor_fills_memory",
        "test_process.py::printed_text_cannot_pass_for_a_reply",
        "test_pool.py::printed_results_are_no_results",
    ),
    "a compiler that is missing, cannot be run, or is too old": (
        "cases/test_environment.py::without_nvcc_the_places_tried_and_the_fix_are_told",
        "test_build_nvcc.py::one_that_is_not_executable_says_so",
        "cases/test_environment.py::a_compiler_too_old_for_the_device_is_told_once_with_both_their_numbers",
    ),
    "a megabyte of errors": ("test_build_nvcc.py::a_megabyte_of_template_errors_is_still_one_row",),
    "a compiler that hangs, or dies": (
        "test_build_nvcc.py::an_nvcc_that_hangs_is_killed_with_its_children",
        "test_build_nvcc.py::an_nvcc_that_dies_by_a_signal_is_a_build_error",
        "emulation/test_emulated_modules.py::a_compiler_ends_when_the_process_that_asked_is_killed",
    ),
    "two processes that build one thing at once": (
        "test_build_cache.py::two_processes_that_build_one_key_at_once_agree_on_one_winner",
    ),
    "source, headers, options, driver or device changed between runs": (
        "cases/test_results.py::what_was_measured_under_other_conditions_is_measured_again",
        "cases/test_compiling.py::a_changed_header_is_compiled_in",
        "test_tune.py::the_context_follows_all_that_a_result_depends_on",
    ),
    "a header that is missing, a circle of them, a link out of the folder": (
        "test_includes.py::a_missing_header_names_the_line_and_the_folders_searched",
        "test_includes.py::an_include_circle_is_told_with_its_members",
        "test_includes.py::a_link_out_of_its_folder_is_refused",
    ),
    "a disk that is full": (
        "faults/test_killed.py::a_disk_that_fills_up_under_a_run_ends_it_with_4_and_keeps_what_was_stored",
        "test_store.py::a_full_disk_is_an_error_and_earlier_trials_stay_readable",
        "test_store.py::a_limit_on_file_sizes_is_an_error_and_earlier_trials_stay_readable",
        "test_table.py::a_file_that_cannot_be_written_leaves_the_old_one_whole",
        "test_build_cache.py::a_disk_that_fills_up_means_no_cache_from_then_on",
        "test_build_nvcc.py::a_full_disk_is_not_the_configurations_fault",
        "test_provenance.py::a_record_that_cannot_be_written_is_an_error",
    ),
    "a folder that is read-only, gone, or on a network": (
        "test_store.py::a_read_only_folder_is_refused_at_once_with_its_name",
        "test_store.py::a_network_file_system_is_refused_with_the_reason",
        "test_app.py::a_results_folder_that_cannot_be_made_ends_with_4",
    ),
    "two sweeps on one study": (
        "faults/test_killed.py::of_two_commands_on_one_study_the_second_is_told_who_has_it_and_since_when",
        "faults/test_killed.py::the_claim_of_a_killed_command_is_taken_over",
        "test_store.py::eight_processes_add_fifty_trials_each_without_loss",
    ),
    "a store that is locked, damaged, or newer": (
        "test_store.py::a_locked_store_is_waited_for_and_then_reported",
        "test_store.py::a_damaged_page_is_refused_and_the_command_in_the_error_recovers_the_rest",
        "test_store.py::a_newer_schema_is_refused_and_says_what_to_do",
        "faults/test_fuzz.py::a_store_with_bytes_changed_and_its_end_cut_off",
    ),
    "a wrong result": (
        "test_backend_cuda_verify.py::a_wrong_result_fails_with_its_check",
        "test_table.py::a_failed_check_shows_its_largest_error_and_where_it_is",
        "cases/test_verification.py::one_element_that_is_not_a_number_keeps_a_configuration_out_of_the_ranking",
    ),
    "a kernel that does nothing, writes half, or answers from memory": (
        "test_backend_cuda_verify.py::a_kernel_that_does_nothing_fails_after_one_that_was_right",
        "test_backend_cuda_verify.py::a_kernel_that_answers_from_memory_is_found_out_by_fresh_inputs",
        "cases/test_verification.py::a_kernel_that_writes_nothing_does_not_live_on_the_results_of_the_one_before",
    ),
    "results that vary": (
        "test_backend_cuda_verify.py::results_that_differ_within_the_bound_are_noted",
        "test_backend_cuda_verify.py::declared_differences_are_not_noted",
    ),
    "clocks that drop": (
        "test_backend_cuda_timing.py::samples_at_a_lower_clock_are_taken_again_and_counted",
        "test_backend_cuda_timing.py::a_clock_that_never_comes_back_leaves_the_row_standing_with_a_note",
    ),
    "somebody else on the device": (
        "test_backend_cuda.py::a_device_that_others_use_is_refused_unless_allowed",
        "test_backend_cuda.py::a_trial_that_a_stranger_disturbed_is_timed_again",
        "test_backend_cuda.py::a_stranger_that_stays_is_noted",
    ),
    "a device that reports errors, or is lost": (
        "test_backend_cuda.py::a_fault_of_the_device_stops_the_sweep",
        "test_nvml.py::a_lost_gpu_is_a_fault_and_asked_no_more",
        "test_nvml.py::xids_are_collected_and_those_of_a_sick_device_are_a_fault",
    ),
    "no NVML, or no right to it": (
        "test_nvml.py::without_the_library_nothing_is_claimed_and_nothing_raises",
        "test_backend_cuda_timing.py::missing_readings_are_noted_and_nothing_is_claimed",
    ),
    "a kernel too short to time": (
        "test_backend_cuda_timing.py::a_kernel_below_10_us_is_replayed_by_a_graph",
        "test_backend_cuda_timing.py::a_kernel_no_slower_than_an_empty_one_is_unstable",
    ),
    "noise that looks like progress": (
        "test_finals.py::a_configuration_against_itself_is_claimed_different_in_at_most_5_of_100",
        "test_finals.py::the_best_of_25_alike_is_claimed_faster_than_the_default_in_at_most_5_of_100",
    ),
    "a space that is empty, or enormous": (
        "test_space.py::a_product_of_a_trillion_points_is_never_built",
        "test_space.py::names_the_constraint_that_removes_most_with_counts",
        "cases/test_launch_limits.py::where_nothing_is_valid_one_line_gives_the_shared_reason",
    ),
    "a thousand failures in a row": (
        "test_search.py::a_thousand_failures_in_a_row_do_not_stop_the_search",
        "test_table.py::statuses_are_counted_with_an_example_of_each_reason",
        "faults/test_soak.py::a_night_in_which_a_fifth_fails_leaves_memory_and_files_as_they_were",
    ),
    "a key that is misspelt, a value of the wrong type": (
        "test_config.py::an_unknown_key_names_the_nearest_right_one",
        "cases/test_sweeps.py::a_key_that_does_not_exist_is_an_error_whatever_its_prefix",
        "cases/test_sweeps.py::a_kernel_that_does_not_exist_is_answered_with_those_that_do",
    ),
    "hostile text": (
        "test_expressions.py::hostile_text_at_once",
        "test_build_source.py::values_that_are_no_plain_cxx_are_refused",
        "test_build_source.py::other_options_are_refused_with_the_list_of_allowed_ones",
        "test_build_cache.py::a_path_in_a_manifest_stays_in_its_folder",
        "faults/test_fuzz.py::an_expression",
        "faults/test_fuzz.py::a_description_with_something_odd_in_one_place",
        "faults/test_fuzz.py::a_table_of_odd_cells",
    ),
    "a password in an address": (
        "test_store.py::a_drivers_message_is_shown_without_the_password",
        "test_store.py::an_unusable_url_is_refused_without_showing_its_password",
        "test_provenance.py::no_text_shows_a_secret",
    ),
    "another locale, terminal, or hash seed": (
        "test_table.py::the_bytes_do_not_depend_on_locale_hash_seed_or_terminal",
        "test_app.py::locale_and_hash_seed_do_not_reach_the_table",
    ),
}

ON_A_GPU = (
    "gpu/test_cuda_backend.py::a_lost_context_is_a_crash_and_the_next_trial_is_true",
    "gpu/test_cuda_backend.py::a_kernel_that_never_ends_is_a_timeout_and_the_next_trial_is_true",
    "gpu/test_cuda_backend.py::a_launch_beyond_a_limit_is_refused_with_its_numbers",
    "gpu/test_cuda_backend.py::a_problem_beyond_the_memory_fails_alone",
    "gpu/test_cuda_backend.py::printed_results_are_no_results",
    "gpu/test_cuda_backend.py::memory_stays_flat_over_hundreds_of_trials",
    "gpu/test_faults_gpu.py::after_a_fault_the_next_ten_configurations_are_right_and_take_as_long_as_ever",
    "gpu/test_faults_gpu.py::a_process_that_comes_to_the_device_is_seen",
)


def main(arguments: list[str]) -> int:
    """Print what pytest is given: `-k NAME or NAME…` and the files, a line each."""
    chosen = ON_A_GPU if arguments == ["gpu"] else [test for tests in FAULTS.values() for test in tests]
    files = dict.fromkeys(test.partition("::")[0] for test in chosen)
    # A contract's tests run where it is filled in.
    places = ["test_store.py" if file.startswith("contract/") else file for file in files]
    names = dict.fromkeys(f"test_{test.partition('::')[2]}" for test in chosen)
    sys.stdout.write(
        "\n".join(["-k", " or ".join(names), *(f"tests/{place}" for place in dict.fromkeys(places))])
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
