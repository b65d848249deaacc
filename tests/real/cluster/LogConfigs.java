import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Reads a key and a value a line, parted by a tab; prints whether Kafka's controller can parse that configuration. */
public class LogConfigs {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] entry = lines.nextLine().split("\t", -1);
            Properties properties = new Properties();
            properties.put(entry[0], entry[1]);
            try {
                LogConfig.fromProps(new HashMap<>(), properties);
                System.out.println(true);
            } catch (RuntimeException wrong) {
                System.out.println(false);
            }
        }
    }
}
