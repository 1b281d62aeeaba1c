package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/pgcdc"
)

// configured stands for the publications of the settings, when --publication is given without a name.
const configured = "*"

type dropOptions struct {
	yes         bool
	warehouse   bool
	publication string // "", configured, or a list of names
}

func (a *app) dropCommand() *cobra.Command {
	var o dropOptions
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Remove the slot and the mirror's local files; keep the Iceberg tables unless told otherwise",
		Long: `drop removes the replication slot on the source and index/, spill/ and reads/ of the data directory. With --warehouse it also
removes the Iceberg tables (warehouse/ and catalog.db), with --publication also the publication on the source.

It refuses while "pgmirror run" uses the data directory. What is gone already is no error. If the source cannot be reached,
the local files are removed, the exit code is 1, and the message says how to remove the slot later: a slot that stays makes
its server keep WAL for ever.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			return a.drop(cmd.Context(), s, o)
		},
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.warehouse, "warehouse", false, "remove the Iceberg tables too")
	cmd.Flags().StringVar(&o.publication, "publication", "", "remove the publication too: the configured ones, or the named `PUBLICATIONS`")
	cmd.Flags().Lookup("publication").NoOptDefVal = configured
	bindSettings(cmd, a.flags, "source", "slot")
	return cmd
}

// slotOwner is the part of the source that drop needs. *pgcdc.Source satisfies it.
type slotOwner interface {
	Slot(ctx context.Context) (info pgcdc.SlotInfo, found bool, err error)
	DropSlot(ctx context.Context) error
}

func (a *app) drop(ctx context.Context, s *settings, o dropOptions) error {
	t, err := s.target()
	if err != nil {
		return err
	}
	dir, err := openDataDir(s.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(a.stderr, "no data directory at %s: nothing to remove there\n", s.Data)
	case err != nil:
		return cannotRun(err)
	default:
		defer dir.Close()
		if err := a.recall(ctx, s, &t, dir); err != nil {
			return err
		}
	}
	publications, err := o.publications(s)
	if err != nil {
		return err
	}
	if !o.yes {
		if err := a.confirm(dropQuestion(t, dir, publications, o)); err != nil {
			return err
		}
	}

	sourceErr := a.dropFromSource(ctx, s, t, publications)
	if dir != nil {
		removed, err := dir.remove(o.warehouse)
		for _, name := range removed {
			fmt.Fprintf(a.stdout, "removed %s\n", name)
		}
		if err != nil {
			return cannotRun(errors.Join(err, sourceErr))
		}
	}
	if sourceErr != nil {
		return finding(sourceErr)
	}
	return nil
}

// recall compares the settings with what the data directory remembers, so that one mirror's drop cannot take another's slot:
// what is not set is taken from there, and a contradiction is refused. If the catalog cannot be read, the slot must be named.
func (a *app) recall(ctx context.Context, s *settings, t *target, dir *dataDir) error {
	known, err := loadStored(ctx, dir)
	switch {
	case err != nil && s.Slot == "":
		return cannotRun(fmt.Errorf("the data directory's catalog, which knows the slot, cannot be read: %w\nName the slot with --slot to go on without it", err))
	case err != nil:
		fmt.Fprintf(a.stderr, "the data directory's catalog cannot be read (%s); going by the settings\n", err)
		return nil
	}
	if known.Database() != "" && known.Database() != t.database {
		return usage(fmt.Errorf("data directory %s mirrors database %q, the source names %q", dir.path, known.Database(), t.database))
	}
	if known.Slot() != "" && known.Slot() != t.slot {
		if s.Slot != "" {
			return usage(fmt.Errorf("data directory %s belongs to slot %s, the settings name slot %s", dir.path, known.Slot(), s.Slot))
		}
		t.slot = known.Slot()
	}
	if len(s.Publications) == 0 {
		s.Publications = known.Publications()
	}
	if s.Types == nil {
		s.Types = map[pgcdc.ColumnName]pgcdc.Form{}
		for name, text := range known.Types() {
			if s.Types[name], err = pgcdc.ParseForm(text); err != nil {
				return cannotRun(fmt.Errorf("the data directory's state: column %s: %w", name, err))
			}
		}
	}
	return nil
}

func (o dropOptions) publications(s *settings) ([]string, error) {
	switch o.publication {
	case "":
		return nil, nil
	case configured:
		if len(s.Publications) == 0 {
			return nil, usage(errors.New("which publication? Name it with --publication=NAME, PGMIRROR_PUBLICATION or in the config file"))
		}
		return s.Publications, nil
	}
	names, err := parseNames(o.publication)
	if err != nil {
		return nil, usage(fmt.Errorf("--publication: %w", err))
	}
	return names, nil
}

// dropFromSource removes the slot, then the publications. It goes on to the local files whatever happens here; its error is
// what stays behind on the source and how to remove it.
func (a *app) dropFromSource(ctx context.Context, s *settings, t target, publications []string) error {
	named := *s
	if len(named.Publications) == 0 {
		named.Publications = []string{t.slot} // pgcdc wants one; removing a slot looks at none
	}
	source, err := openSource(&named, t, "", nil, newLog(s, a.stderr))
	if err != nil {
		return err
	}
	defer source.Close()
	if err := a.dropSlot(ctx, source, t); err != nil {
		return err
	}
	if len(publications) == 0 {
		return nil
	}
	conn, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var faults []error
	for _, name := range publications {
		found, err := dropPublication(ctx, conn, name)
		switch {
		case err != nil:
			faults = append(faults, err)
		case found:
			fmt.Fprintf(a.stdout, "dropped publication %s\n", oneLine(name))
		default:
			fmt.Fprintf(a.stdout, "publication %s is gone already\n", oneLine(name))
		}
	}
	return errors.Join(faults...)
}

// dropSlot removes the one slot of exactly this name, and only if it can be a mirror's: pgoutput, in this database.
func (a *app) dropSlot(ctx context.Context, source slotOwner, t target) error {
	info, found, err := source.Slot(ctx)
	switch {
	case hasState(err, "3D000"): // invalid_catalog_name; a database takes its slots along
		fmt.Fprintf(a.stdout, "database %s is gone, and slot %s with it\n", oneLine(t.database), t.slot)
		return nil
	case err != nil:
		return slotRemains(t.slot, err)
	case !found:
		fmt.Fprintf(a.stdout, "slot %s is gone already\n", t.slot)
		return nil
	case info.Plugin != "pgoutput" || info.Database != t.database:
		return fmt.Errorf("slot %s is not this mirror's (plugin %s, database %s): it was not dropped", t.slot, oneLine(info.Plugin), oneLine(info.Database))
	}
	if err := source.DropSlot(ctx); err != nil {
		return slotRemains(t.slot, err)
	}
	fmt.Fprintf(a.stdout, "dropped slot %s\n", t.slot)
	return nil
}

func slotRemains(slot string, err error) error {
	return fmt.Errorf("slot %s was not dropped: %w\nIf its server still exists, run there: SELECT pg_drop_replication_slot('%s');", slot, err, slot)
}

func dropQuestion(t target, dir *dataDir, publications []string, o dropOptions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "This drops replication slot %s in database %s", t.slot, oneLine(t.database))
	for _, name := range publications {
		fmt.Fprintf(&b, ", publication %s", oneLine(name))
	}
	if dir != nil {
		fmt.Fprintf(&b, "\nand removes from %s: %s/, %s/, %s/", oneLine(dir.path), indexDir, spillDir, readsDir)
		if o.warehouse {
			fmt.Fprintf(&b, ", %s/ and %s, that is, ALL MIRRORED TABLES", warehouseDir, catalogFile)
		}
	}
	b.WriteString(".\nGo on? Type yes: ")
	return b.String()
}

// confirm asks on standard error, so that standard output stays the answer. Anything but yes, and an end of input, stops.
func (a *app) confirm(question string) error {
	fmt.Fprint(a.stderr, question)
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if strings.TrimSpace(line) == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(a.stderr)
	}
	return finding(errors.New("nothing was removed (--yes goes on without asking)"))
}
