package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// These commands ask a running `pgmirror run` through its socket.

// dial connects to the run that holds the data directory. It is dialled anew by each command and closed by the caller.
func (a *app) dial(ctx context.Context) (*readstate.Client, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	client, err := readstate.Dial(ctx, s.Data)
	if err != nil {
		return nil, cannotRun(err)
	}
	return client, nil
}

func (a *app) checkpointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint",
		Short: "Commit everything that is visible to Iceberg now, and acknowledge it to the source",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := a.call(cmd.Context(), "checkpoint", nil)
			if err != nil {
				return err
			}
			return a.printDocument(answer)
		},
	}
}

func (a *app) inspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect TABLE",
		Short: "Show a table's files, deletion vectors, memory batches, index files and snapshots",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := a.call(cmd.Context(), "inspect", mirror.InspectRequest{Table: args[0]})
			if err != nil {
				return err
			}
			if asJSON {
				return a.print(append(answer, '\n'))
			}
			return a.printDocument(answer)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	return cmd
}

// call runs one command inside the running mirror. Its progress goes to standard error.
func (a *app) call(ctx context.Context, command string, arguments any) ([]byte, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var args []byte
	if arguments != nil {
		if args, err = json.Marshal(arguments); err != nil {
			return nil, cannotRun(fmt.Errorf("%s: %w", command, err))
		}
	}
	answer, err := client.Call(ctx, command, args, func(line string) { fmt.Fprintln(a.stderr, oneLine(line)) })
	if err != nil {
		return nil, cannotRun(err)
	}
	return answer, nil
}

func (a *app) print(text []byte) error {
	if _, err := a.stdout.Write(text); err != nil {
		return cannotRun(fmt.Errorf("write the answer: %w", err))
	}
	return nil
}

// printDocument shows a JSON object to people: its plain members and lists of plain values as lines, then each list of objects
// as a table.
func (a *app) printDocument(document []byte) error {
	var b strings.Builder
	if err := writeDocument(&b, document); err != nil {
		return cannotRun(fmt.Errorf("read the answer: %w", err))
	}
	return a.print([]byte(b.String()))
}

func writeDocument(w io.Writer, document []byte) error {
	members, err := objectMembers(document)
	if err != nil {
		return err
	}
	tables := &bytes.Buffer{}
	for _, m := range members {
		var items []json.RawMessage
		if json.Unmarshal(m.value, &items) != nil { // no list
			items = []json.RawMessage{m.value}
		} else if len(items) > 0 && items[0][0] == '{' {
			fmt.Fprintf(tables, "\n%s: %d\n", label(m.name), len(items))
			if err := writeObjects(tables, items); err != nil {
				return err
			}
			continue
		}
		texts := make([]string, len(items))
		for i, item := range items {
			texts[i] = cell(item)
		}
		fmt.Fprintf(w, "%s: %s\n", label(m.name), cmp.Or(strings.Join(texts, ", "), "none"))
	}
	_, err = tables.WriteTo(w)
	return err
}

// writeObjects writes objects as a table with a column for each member that any of them has.
func writeObjects(w io.Writer, items []json.RawMessage) error {
	table := &textTable{}
	at := map[string]int{}
	var rows []map[string]string
	for _, item := range items {
		members, err := objectMembers(item)
		if err != nil {
			return err
		}
		row := map[string]string{}
		for _, m := range members {
			if _, seen := at[m.name]; !seen {
				at[m.name] = len(table.header)
				table.column(label(m.name), isNumber(m.value))
			}
			row[m.name] = cell(m.value)
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		cells := make([]string, len(table.header))
		for name, text := range row {
			cells[at[name]] = text
		}
		table.row(cells...)
	}
	return table.writeTo(w)
}

type member struct {
	name  string
	value json.RawMessage
}

// objectMembers splits a JSON object, keeping the order in which it was written.
func objectMembers(document []byte) ([]member, error) {
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var members []member
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		members = append(members, member{fmt.Sprint(name), value})
	}
	return members, nil
}

func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

func label(name string) string { return strings.ReplaceAll(oneLine(name), "_", " ") }

// cell is a JSON value for people: a string without its quotes, anything else as it stands.
func cell(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return oneLine(text)
	}
	return oneLine(string(value))
}
