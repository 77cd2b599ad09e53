"""All events as one type: the schema of the log."""

from __future__ import annotations

from typing import TypeAlias

from iris_cli.core.events import events as ev

AnyEvent: TypeAlias = (
    ev.ClusterCreated
    | ev.LogCompacted
    | ev.WorkerRegistered
    | ev.WorkerUpdated
    | ev.WorkerConditionChanged
    | ev.WorkerSilenceCounted
    | ev.WorkerSkewChanged
    | ev.WorkerQuarantined
    | ev.WorkerTainted
    | ev.WorkerDrained
    | ev.WorkerUncordoned
    | ev.WorkerUnwedged
    | ev.WorkerForgotten
    | ev.JobSubmitted
    | ev.JobAdopted
    | ev.JobCancelled
    | ev.JobEnded
    | ev.GangRoundEnded
    | ev.TaskAssigned
    | ev.DispatchTakenOver
    | ev.TaskDispatched
    | ev.TaskDispatchFailed
    | ev.TaskRunning
    | ev.AttemptHeldUp
    | ev.AttemptOrphaned
    | ev.TaskQuiet
    | ev.AttemptUnkillable
    | ev.AttemptPresumedGone
    | ev.AttemptProvenGone
    | ev.AttemptEnded
    | ev.AttemptStopRequested
    | ev.AttemptStopped
    | ev.EndpointRegistered
    | ev.EndpointRemoved
    | ev.AttemptsReaped
    | ev.TaskRequeued
    | ev.TaskEnded
    | ev.SliceRequested
    | ev.SliceCreated
    | ev.SliceRefused
    | ev.SliceStarted
    | ev.SliceSetUp
    | ev.SliceJoined
    | ev.SliceDeletionRequested
    | ev.SliceDeleted
    | ev.SlicesAdopted
    | ev.ScaleGroupBackedOff
)
"""A tagged union: the name of each class is its `type`."""
