package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asProgram makes the test program be pgmirror, so that tests can run it on a terminal.
const asProgram = "PGMIRROR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// terminal is a program on a pseudo-terminal of 80 by 24 characters, and what it has written.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	read   chan struct{} // closed when nothing more comes

	mu   sync.Mutex
	text bytes.Buffer // what expect has not passed yet
	more chan struct{}
}

// startTerminal runs pgmirror with arguments, with nothing of this process's environment but what is given and the PATH.
func startTerminal(t *testing.T, environ []string, args ...string) *terminal {
	t.Helper()
	return startTerminalTo(t, nil, environ, args...)
}

// startTerminalTo sends standard output to a file instead of the terminal, if there is one.
func startTerminalTo(t *testing.T, stdout *os.File, environ []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: master, cmd: exec.Command(program, args...), read: make(chan struct{}), more: make(chan struct{}, 1)}
	term.cmd.Env = append([]string{asProgram + "=1", "TERM=xterm", "PATH=" + os.Getenv("PATH")}, environ...)
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	if stdout != nil {
		term.cmd.Stdout = stdout
	}
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go term.receive()
	t.Cleanup(func() {
		term.cmd.Process.Kill()
		term.cmd.Wait()
		<-term.read
		master.Close()
	})
	return term
}

func (term *terminal) receive() {
	defer close(term.read)
	buffer := make([]byte, 4096)
	for {
		n, err := term.master.Read(buffer)
		term.mu.Lock()
		term.text.Write(buffer[:n])
		term.mu.Unlock()
		select {
		case term.more <- struct{}{}:
		default:
		}
		if err != nil {
			return // EIO, when the last process has left the terminal
		}
	}
}

// resize makes the terminal another size and tells the program.
func (term *terminal) resize(lines, width uint16) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: width}); err != nil {
		term.t.Fatal(err)
	}
}

// patient returns what pauses a loop that waits for a file, and ends the test when it has waited for too long.
func patient(t *testing.T) (pause func()) {
	late := time.Now().Add(30 * time.Second)
	return func() {
		t.Helper()
		if time.Now().After(late) {
			t.Fatal("it did not come")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// keys types.
func (term *terminal) keys(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

// expect waits until the program has written a text and returns all up to its end.
func (term *terminal) expect(text string) string {
	term.t.Helper()
	late := time.After(30 * time.Second)
	for ended := false; ; {
		term.mu.Lock()
		have := term.text.String()
		if at := strings.Index(have, text); at >= 0 {
			out := string(term.text.Next(at + len(text)))
			term.mu.Unlock()
			return out
		}
		term.mu.Unlock()
		if ended {
			term.t.Fatalf("the program ended without %q; it wrote\n%s", text, have)
		}
		select {
		case <-term.more:
		case <-term.read:
			ended = true
		case <-late:
			term.t.Fatalf("no %q came; it wrote\n%s", text, have)
		}
	}
}

// run types a line and returns what is written up to the next prompt.
func (term *terminal) run(line string) string {
	term.t.Helper()
	term.keys(line + "\r")
	term.expect("\r\n")
	return term.expect("> ")
}

// exit waits for the program to end and returns its exit code.
func (term *terminal) exit() int {
	term.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { term.cmd.Process.Kill() })()
	term.cmd.Wait()
	return term.cmd.ProcessState.ExitCode()
}
