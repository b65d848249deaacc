import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;

/**
 * Runs the main methods of Kafka's tools one after the other in this JVM, where a start of its own would take each of
 * them a second or two.
 *
 * A line of standard input is a class name and its arguments, these in Base64; the answer is a line with the exit code
 * and, in Base64, what went to standard output and standard error. A tool that exits is held there for good: nothing
 * of it runs any more, as if its JVM had ended. Logging, and whatever else keeps a stream, keeps one that goes to the
 * tool that is running.
 */
public class Runner {
    private static volatile ByteArrayOutputStream out = new ByteArrayOutputStream();
    private static volatile ByteArrayOutputStream err = new ByteArrayOutputStream();
    private static volatile CompletableFuture<Integer> exit = new CompletableFuture<>();

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        System.setSecurityManager(new ExitHeld());
        System.setOut(stream(false));
        System.setErr(stream(true));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            exit = new CompletableFuture<>();
            String[] arguments = Arrays.stream(words).skip(1).map(Runner::decoded).toArray(String[]::new);
            Thread tool = new Thread(() -> exit.complete(run(words[0], arguments)));
            tool.setDaemon(true);
            tool.start();
            int code = exit.get();
            answers.println(code + " " + encoded(out) + " " + encoded(err) + " .");
            answers.flush();
        }
    }

    private static int run(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            System.err.print("Exception in thread \"main\" ");
            thrown.getCause().printStackTrace();
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace();
        }
        return 1;
    }

    private static PrintStream stream(boolean error) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int one) {
                (error ? err : out).write(one);
            }

            @Override
            public void write(byte[] some, int from, int length) {
                (error ? err : out).write(some, from, length);
            }
        }, true);
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream written) {
        return Base64.getEncoder().encodeToString(written.toByteArray());
    }

    /** Everything is allowed; who exits tells the code and waits for ever. */
    private static class ExitHeld extends SecurityManager {
        @Override
        public void checkPermission(Permission any) {
        }

        @Override
        public void checkPermission(Permission any, Object context) {
        }

        @Override
        public void checkExit(int code) {
            exit.complete(code);
            while (true) {
                try {
                    new CountDownLatch(1).await();
                } catch (InterruptedException again) {
                    continue;
                }
            }
        }
    }
}
