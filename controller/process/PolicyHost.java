import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * Loads a create-topic policy class as a broker does, and asks it: each line of the input is a number and a topic, each
 * line of the output that number and its answer; other lines are of the JVM. Arguments: the class, and a properties
 * file by which it is configured, if there is one.
 */
public class PolicyHost {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what the class prints is no answer
        CreateTopicPolicy policy = null;
        try {
            policy = loaded(arguments);
        } catch (Throwable failed) {
            System.err.println(arguments[0] + " cannot be loaded: " + failed);
            System.exit(1);
        }
        BufferedReader topics = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = topics.readLine(); line != null; line = topics.readLine()) {
            int end = line.indexOf(' ') + 1;
            answers.println(line.substring(0, end) + JSON.writeValueAsString(answer(policy, line.substring(end))));
        }
        policy.close();
    }

    private static CreateTopicPolicy loaded(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        if (arguments.length > 1) {
            Properties properties = new Properties();
            try (FileReader file = new FileReader(arguments[1], StandardCharsets.UTF_8)) {
                properties.load(file);
            }
            properties.forEach((key, value) -> settings.put(key.toString(), value));
        }
        CreateTopicPolicy policy =
            (CreateTopicPolicy) Class.forName(arguments[0]).getDeclaredConstructor().newInstance();
        policy.configure(settings);
        return policy;
    }

    private static Map<String, Object> answer(CreateTopicPolicy policy, String line) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("allowed", false);
        try {
            policy.validate(request(JSON.readTree(line)));
            answer.put("allowed", true);
        } catch (PolicyViolationException refused) {
            answer.put("reason", String.valueOf(refused.getMessage()));
        } catch (Throwable failed) {
            answer.put("error", "its class has failed: " + failed);
        }
        return answer;
    }

    private static CreateTopicPolicy.RequestMetadata request(JsonNode topic) {
        JsonNode partitions = topic.get("numPartitions");
        JsonNode factor = topic.get("replicationFactor");
        Map<Integer, List<Integer>> assignments = null;
        if (!topic.get("replicasAssignments").isNull()) {
            assignments = new HashMap<>();
            for (var fields = topic.get("replicasAssignments").fields(); fields.hasNext(); ) {
                var entry = fields.next();
                List<Integer> replicas = new ArrayList<>();
                entry.getValue().forEach(replica -> replicas.add(replica.asInt()));
                assignments.put(Integer.valueOf(entry.getKey()), replicas);
            }
        }
        Map<String, String> configs = new HashMap<>();
        topic.get("configs").fields().forEachRemaining(one -> configs.put(one.getKey(), one.getValue().asText()));
        return new CreateTopicPolicy.RequestMetadata(
            topic.get("topic").asText(),
            partitions.isNull() ? null : partitions.asInt(),
            factor.isNull() ? null : (short) factor.asInt(),
            assignments,
            configs);
    }
}
