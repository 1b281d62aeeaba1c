package pgcdc

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// slotFindings judges the slot, or what would keep it from being made.
func (j *judgement) slotFindings() {
	if !j.slotFound {
		j.blockerFindings()
		return
	}
	object := "slot " + quoteIdent(j.slot.Name)
	switch err := checkSlot(j.slot, true, j.database); {
	case errors.Is(err, ErrSlotLost):
		why := "the source has removed WAL that it needed, so changes are missing"
		if j.slot.Active { // just now
			why += "; process " + strconv.Itoa(int(j.slot.ActivePID)) + " still uses it"
		}
		j.add(Finding{LevelError, "slot_lost", object, "it is lost", why, Fix{
			Shell:  []string{"pgmirror drop --yes --warehouse"},
			Advice: "give it --data and --source, or a config file, as for run, which then copies everything anew; raise max_slot_wal_keep_size before",
		}})
		return
	case err != nil:
		what := "it is a physical slot"
		if j.slot.Plugin != "" {
			what = "it is of plugin " + j.slot.Plugin + " and database " + quoteIdent(j.slot.Database)
		}
		j.add(Finding{LevelError, "slot_mismatch", object, what, "the mirror needs a slot of its own of plugin pgoutput, and leaves others alone",
			Fix{Config: []string{"slot: " + otherName(j.slot.Name)}}})
		return
	case j.slot.WALStatus == "unreserved":
		j.add(Finding{LevelWarning, "slot_unreserved", object, "it keeps more WAL than the server allows, and is lost at its next checkpoint",
			"everything is then copied anew", j.provider.setting("max_slot_wal_keep_size", slotKeepWanted)})
	}
	if j.slot.Active {
		user := ""
		if j.slotUser != "" {
			user = " (" + j.slotUser + ")"
		}
		pid := strconv.Itoa(int(j.slot.ActivePID))
		j.add(Finding{LevelWarning, "slot_active", object, "process " + pid + user + " uses it", "a slot has one reader: if that is the pgmirror run you know of all is well, another is refused",
			Fix{SQL: []string{"SELECT pg_terminate_backend(" + pid + ");"}, Advice: "only if it is not yours; stop the other pgmirror, or it comes back"}})
	}
}

// otherName is a slot name beside a taken one.
func otherName(name string) string { return name[:min(len(name), 61)] + "_2" }

// blockerFindings names what the making of the slot would wait for.
func (j *judgement) blockerFindings() {
	const why = "the slot is made only when every transaction that has written before has ended"
	for _, b := range j.blockers {
		age := "more than " + blockedAfter.String()
		if b.seconds >= 0 {
			age = (time.Duration(b.seconds) * time.Second).String()
		}
		problem := "it has written in a transaction that has been open for " + age
		if b.state != "" {
			problem += " (" + b.state + ")"
		}
		j.add(Finding{LevelWarning, "blocking_transaction", fmt.Sprintf("process %d (role %s, database %s)", b.pid, quoteIdent(b.user), quoteIdent(b.database)),
			problem, why, Fix{SQL: []string{"SELECT pg_terminate_backend(" + strconv.FormatInt(b.pid, 10) + ");"}, Advice: "or let it commit; this rolls it back"}})
	}
	for _, gid := range j.prepared {
		j.add(Finding{LevelWarning, "prepared_transaction", "prepared transaction " + quoteLiteral(gid), "it is neither committed nor rolled back", why,
			Fix{SQL: []string{"ROLLBACK PREPARED " + quoteLiteral(gid) + ";"}, Advice: "or COMMIT PREPARED, whichever its maker wants; in its own database"}})
	}
}
