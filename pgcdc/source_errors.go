package pgcdc

import "errors"

// What a source can be found to be. Each message says what is wrong and what to do about it.
var (
	// ErrLost is a connection that ended under us. It is retryable.
	ErrLost = errors.New("the connection to the source was lost")
	// ErrSilent is a server that sent nothing for longer than it may: a dead host or a firewall that drops packets. It is retryable.
	ErrSilent = errors.New("the source has gone silent")
	// ErrSpill says that a large transaction cannot be written to its file, as on a full disk. It is retryable: the source sends the
	// transaction again.
	ErrSpill = errors.New("spill a large transaction")
	// ErrStreaming is a server that fails over a transaction that it decodes while it runs. It is retryable: from then on this
	// Source asks for whole transactions, and PostgreSQL decodes after the commit what it could not decode before it.
	ErrStreaming = errors.New("the source cannot stream a transaction that is running; whole transactions are asked for from now on")
	// ErrShutdown is a server that waits for us in order to shut down. It is retryable.
	ErrShutdown = errors.New("the source is shutting down")
	// ErrSnapshotLost is an exported snapshot whose connection has ended. It is retryable with a new slot.
	ErrSnapshotLost = errors.New("the exported snapshot is gone with the connection that held it")
	// ErrRewritten is a relation that changed between the exported snapshot and its copy.
	ErrRewritten = errors.New("the table was rewritten or altered after the snapshot was exported")

	// ErrVersion is a server that is too old.
	ErrVersion = errors.New("the server is older than PostgreSQL 14; upgrade it")
	// ErrWALLevel is a server that writes no logical WAL.
	ErrWALLevel = errors.New("wal_level is not logical; set wal_level = logical on the source and restart it")
	// ErrNoReplication is a role that may not replicate.
	ErrNoReplication = errors.New("the role may not replicate; run ALTER ROLE … REPLICATION on the source")

	// ErrSlotMissing is a configured slot that does not exist.
	ErrSlotMissing = errors.New("the replication slot does not exist; if it was dropped, changes are missing: run `pgmirror drop --warehouse` and mirror again")
	// ErrSlotLost is a slot whose WAL the server has removed.
	ErrSlotLost = errors.New("the replication slot is lost because the source removed WAL that it needed; raise max_slot_wal_keep_size, run `pgmirror drop --warehouse` and mirror again")
	// ErrSlotMismatch is a slot of our name that is not ours.
	ErrSlotMismatch = errors.New("the replication slot belongs to something else; choose another --slot")
	// ErrSlotActive is a slot that another connection uses. It is retryable.
	ErrSlotActive = errors.New("the replication slot is in use by another connection; stop the other pgmirror")
	// ErrDecoding is a server that fails at its own WAL: the slot stays where it is until a person has repaired what its error names.
	ErrDecoding = errors.New("the source cannot decode its WAL")
	// ErrSlotExists is a slot that was to be made.
	ErrSlotExists = errors.New("the replication slot exists already; run `pgmirror drop` or choose another --slot")
	// ErrSlotLimit is a server without room for one slot more.
	ErrSlotLimit = errors.New("the source has no free replication slot; drop one that nobody uses or raise max_replication_slots")
	// ErrHeldBack is a snapshot for which transactions that have written would have to end first.
	ErrHeldBack = errors.New("open transactions hold the snapshot back")

	// ErrPublicationMissing is a publication that does not exist. What to do depends on whether a slot has begun to send it.
	ErrPublicationMissing = errors.New("the publication does not exist")
	// ErrPublicationDropped is one that does not exist at a change that the stream has come to.
	ErrPublicationDropped = errors.New("the publication was dropped, and what was written since cannot be read even when it is made again; run `pgmirror drop --warehouse`, make it and mirror again")
	// ErrPublicationYounger is a publication that was made, or made again, after the slot.
	ErrPublicationYounger = errors.New("the publication is younger than the replication slot, so earlier changes cannot be read; run `pgmirror drop --warehouse` and mirror again")
	// ErrPublicationPartial is a publication that leaves out an operation.
	ErrPublicationPartial = errors.New("the publication leaves out operations; run ALTER PUBLICATION … SET (publish = 'insert, update, delete, truncate') or set partial_publish")
	// ErrNothingToPublish is a publication that would be empty.
	ErrNothingToPublish = errors.New("no table has a primary key or another replica identity; add one or name the tables")
)
