//! Runs the models. [`redlock_models::explore`] says how to run more schedules, or how to repeat one.

macro_rules! models {
    ($($module:ident { $($model:ident)* })*) => {
        $(mod $module {
            $(#[test]
            fn $model() {
                let name = concat!(stringify!($module), "::", stringify!($model));
                redlock_models::explore::explore(name, redlock_models::$module::$model);
            })*
        })*
    };
}

models! {
    connecting {
        threads_share_the_connection_that_comes
        a_connection_that_is_announced_first
        threads_learn_that_no_connection_comes
        a_connection_comes_beside_a_silent_server
        no_connection_comes_beside_a_silent_server
    }
    parking {
        a_change_wakes
        cancelled_at_each_moment
        sleepers_of_one_cancel
        cancelled_by_the_outer_one
        changed_while_it_is_cancelled
        one_sleep_after_the_other
        a_pause
    }
    queue {
        first_come_first_served
        a_crowd
        late_while_moving_up
        late_or_closed_while_promised
        hand_to_hand
        hand_to_hand_to_the_end
        closed_while_entering
        trying_while_others_wait
        sharing
    }
    sharing {
        a_join_meets_the_last_leave
        a_close_meets_joins
        lost_while_threads_join
        a_writer_waits_for_its_turn
        late_while_it_is_shared
    }
    renewal {
        one_after_the_other
        side_by_side
        ended_while_a_round_hangs
        taken_over_while_it_ends
        idle_threads_end
        lost_before_its_guard_ends
        the_client_ends
    }
    leases {
        ended_while_it_is_renewed
        revoked_while_it_ends
        lost_while_it_ends
        expired_while_handlers_are_added
        renewed_without_answers
        from_hand_to_hand
        from_hand_to_hand_while_all_are_revoked
        a_drop_that_is_overtaken
        a_minimum_hold
        asked_for_while_it_ends
        noticed_by_a_look
    }
    transport {
        each_gets_its_own_reply
        over_a_network
        a_thread_that_is_woken_and_leaves
        two_threads_and_two_connections
        a_call_that_is_sent_again
        a_reader_whose_time_is_up
        a_release_is_behind_its_acquire
        a_release_is_behind_its_acquire_and_a_wait
        what_is_left_is_written
        a_connection_that_breaks
        a_connection_that_another_thread_closes
        a_reply_that_no_call_expects
        a_socket_without_room
        a_server_that_does_not_read
        several_servers
        a_server_that_hangs_beside_another_one
        replicas_are_asked
        replicas_are_asked_over_a_network
        replicas_are_asked_without_a_drain_thread
        many_acquires_at_a_time
        a_connection_that_breaks_while_replicas_are_asked
        a_break_while_a_thread_is_woken
    }
    unattended {
        a_release_that_nobody_follows
        a_release_that_does_not_fit
        a_release_that_is_answered_late
        calls_for_which_no_thread_waits
        each_callback_is_called_once
        a_late_callback_is_called_once
        a_callback_on_a_connection_that_breaks
        callbacks_before_threads
        a_callback_that_sends_again
        the_end_of_a_client
        without_a_drain_thread
        a_drain_thread_that_rests
    }
    turns {
        each_hears_its_own
        readers_whose_time_is_up
        cancelled_waits
        a_push_at_the_last_moment
        a_connection_that_breaks
        a_connection_that_falls_silent
        the_client_ends
        ended_waits
        an_ended_wait_before_there_is_a_connection
        a_connection_that_rests
    }
}
